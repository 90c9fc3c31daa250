"""Advice on a conversion: options that do not apply, stars that are no wildcards, choices that nothing comes of."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from ...readers import all_options, detect_format, format_of_name
from ..errors import ChunkmillError
from ..rrd import RrdFile
from ..stream import ContentFilter
from .complaints import complain
from .jobs import ConversionJob
from .options import ConvertOptions

_LOOKED_INTO: Final = 64_000_000
"""The largest input, in bytes, that is read once more to name its contents."""

_TOPICS: Final = "include_topic_regex"
_RULES: Final = re.compile(r"([+-]?)\s*([^\s+-]\S*)")
"""The rules of an expression: whether each is for or against, and its path."""


def advise_before(jobs: Sequence[ConversionJob], options: ConvertOptions) -> None:
    """Warn of faults that are visible before anything is read."""
    for text in (*_options_for_nothing(jobs, options), *_stars(options)):
        complain(text, kind="warning")


def advise_after(jobs: Iterable[ConversionJob], options: ConvertOptions) -> None:
    """Warn of each choice of entities or topics without a result in any of the finished jobs.

    Outputs are read until every choice has a result. With a pipeline, entities may be others than those
    that were chosen, and nothing is said.
    """
    left = {("--content", rule) for text in options.content for rule in _included(text)}
    left |= {("--topics", pattern) for pattern in options.reading.get(_TOPICS, ())}
    if not left or options.pipeline is not None:
        return
    done = list(jobs)
    for job in done:
        if isinstance(job.destination, Path) and left:
            entities = _entities_written(job.destination)
            left = {choice for choice in left if not any(_chooses(*choice, entity) for entity in entities)}
    if not left or not done or not all(isinstance(job.destination, Path) for job in done):
        return
    paths = _entities_read(done[0])
    for option, text in sorted(left):
        close = _closest(text, paths)
        meant = f"; did you mean {close!r}?" if close else f"; there is {_some(paths)}" if paths else ""
        complain(f"nothing was written for {option} {text!r}{meant}", kind="warning")


def _options_for_nothing(jobs: Sequence[ConversionJob], options: ConvertOptions) -> list[str]:
    rows = [format_of_name(job.source.name) for job in jobs]
    if None in rows:
        return []  # known by its content, or a folder
    applicable = {option.name for row in rows if row is not None for option in row.options}
    left = [option for option in all_options() if option.name in options.reading and option.name not in applicable]
    return [f"{option.flag or option.name} does not apply: no input has a format with this option" for option in left]


def _stars(options: ConvertOptions) -> list[str]:
    """A line for each star in a place of a shell's wildcard.

    >>> options = ConvertOptions(content=("/imu/* - /camera/**",), reading={"include_topic_regex": ("/imu/*",)})
    >>> for line in _stars(options):
    ...     print(line)
    --content '/imu/*': '*' is not a wildcard here, only a final '/**' is; did you mean '/imu/**'?
    --topics '/imu/*' is a regular expression, in which '*' repeats what is before it; to match all, write '/imu/.*'
    """
    lines = []
    for path in (path for text in options.content for _, path in _RULES.findall(text)):
        if _has_star(path):
            meant = f"{path[: path.index('*')].rpartition('/')[0]}/**"
            lines.append(
                f"--content {path!r}: '*' is not a wildcard here, only a final '/**' is; did you mean {meant!r}?"
            )
    for name, flag in ((_TOPICS, "--topics"), ("exclude_topic_regex", "--exclude-topics")):
        for pattern in options.reading.get(name, ()):
            if "/*" in pattern:
                meant = re.sub(r"/\*+", "/.*", pattern)
                lines.append(
                    f"{flag} {pattern!r} is a regular expression, in which '*' repeats what is before it; to match "
                    f"all, write {meant!r}"
                )
    return lines


def _has_star(path: str) -> bool:
    return "*" in path.removesuffix("/**")


def _included(text: str) -> list[str]:
    """The wanted paths of an expression; without those with a star, which have a warning already.

    >>> _included("/imu/** +/gps - /imu/raw /a*")
    ['/imu/**', '/gps']
    """
    return [path for sign, path in _RULES.findall(text) if sign != "-" and not _has_star(path)]


def _chooses(option: str, text: str, entity: str) -> bool:
    if option == "--content":
        return ContentFilter([text]).matches(entity)
    return any(re.search(text, name) for name in (entity, entity.lstrip("/")))


def _entities_written(path: Path) -> set[str]:
    """The entities of an output, by its footer, without those about the recording."""
    with suppress(ChunkmillError, OSError):
        file = RrdFile(path)
        tables = [file.listing(store) for store in file.stores() if store.kind == "recording"]
        return {entity for table in tables if table is not None for entity in table.entity_codes[1]}
    return set()


def _entities_read(job: ConversionJob) -> list[str]:
    """The topics or entities of a small local input."""
    with suppress(ChunkmillError, OSError):
        if isinstance(job.source, Path) and job.source.is_file() and job.source.stat().st_size <= _LOOKED_INTO:
            report = detect_format(job.source).inspect(job.source)
            return [e.path for s in report.stores for e in s.entities if not e.path.startswith("/__")]
    return []


def _closest(text: str, paths: Sequence[str]) -> str:
    """The path that a text may have meant, or a parent of several paths.

    >>> paths = ["/gps/fix", "/imu/data"]
    >>> _closest("/imuu/**", paths), _closest("/gps/fxi", paths), _closest("/camera", paths)
    ('/imu/**', '/gps/fix', '')
    """
    above = {"/".join(parts[:size]) for parts in (name.split("/") for name in paths) for size in range(2, len(parts))}
    wants_all = text.endswith("/**")
    candidates = [*paths, *sorted(above)] if wants_all else list(paths)
    matches = difflib.get_close_matches(text.removesuffix("/**"), candidates, 1, 0.75)
    return f"{matches[0]}/**" if matches and wants_all else "".join(matches)


def _some(paths: Sequence[str]) -> str:
    return ", ".join(paths[:4]) + (f" and {len(paths) - 4:,} more" if len(paths) > 4 else "")
