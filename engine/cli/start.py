"""The start of the program: boot Spark's JVM early, import little, and give advice on options.

For the program only, and if no code of the user's runs in it: in a user's own process the libraries would not know
each other any more.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from ...readers import all_options, detect_format, format_of_name
from ..errors import ChunkmillError
from ..rrd import RrdFile
from ..stream import ContentFilter
from ..units import size
from .complaints import complain
from .jobs import ConversionJob
from .options import ConvertOptions

if TYPE_CHECKING:
    from ..locations import Location

_LOOKED_FOR: Final = ("pandas", "dateutil")
"""Modules that pyarrow looks for when it first converts a Python object."""

_WHY: Final = {"inline": "done here before Spark has started", "spark": "worth the start of Spark"}


def resolve_executor(
    options: ConvertOptions, jobs: Sequence[ConversionJob] | None, *, own_functions: bool = False
) -> ConvertOptions:
    """Return the options with the executor resolved; only ``auto`` needs the ``jobs``, and looks at them.

    Where that is Spark, its JVM boots while readers are imported and the inputs are looked at.
    """
    sources = None if jobs is None else {job.source for job in jobs}
    executor, chosen = choice(options.executor, sources, own_functions=own_functions)
    if executor == "spark":
        from ..spark import start_ahead

        start_ahead(options.master, options.conf)
    elif not own_functions:
        leave_out_what_nothing_needs()
    return replace(options, executor=executor, chosen=chosen)


def choice(
    given: str | None,
    sources: Collection[Location] | None,
    *,
    unknown: str = "what is not local",
    own_functions: bool = False,
) -> tuple[str, str]:
    """Return the executor, and for ``auto`` why; only ``auto`` looks at the files and folders ``sources``.

    ``unknown`` is what there is to do where they are None, or not local.
    """
    from ..execution import executor_for, is_auto

    if not is_auto(given):
        return executor_for(given, lambda: None), ""
    num_bytes = None
    if sources is not None:
        from .jobs import local_bytes

        num_bytes = local_bytes(sources)
    executor = executor_for(given, lambda: num_bytes, own_functions=own_functions)
    amount = unknown if num_bytes is None else f"{size(num_bytes)} of input"
    return executor, f"auto: {amount} is {_WHY[executor]}"


class _Missing:
    """An import hook that finds none of some modules."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if name in _LOOKED_FOR:
            raise ImportError(name)
        return None


class _NothingMasked(ModuleType):
    """A stand-in for ``numpy.ma`` until it is imported: until then no array can be masked."""

    class MaskedArray:
        """A class without instances."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module("numpy.ma"), name)

    @staticmethod
    def is_masked(_array: object) -> bool:
        """Return False: no array is masked."""
        return False


def leave_out_what_nothing_needs() -> None:
    """Keep pyarrow from loading pandas and dateutil, and numpy from loading its masked arrays.

    Without this a cold ``convert`` of the demo recording takes 0.93 s of CPU instead of 0.59 (2 cores, least of nine
    in turns; ``test_cold_convert_of_a_small_file`` guards it), and nothing on the way from a file to an RRD needs them.
    Does nothing about a module that is loaded already.
    """
    import numpy as np
    import pyarrow as pa

    if not sys.modules.keys() & set(_LOOKED_FOR):
        finder = _Missing()
        sys.meta_path.insert(0, finder)
        try:
            pa.array([None])
        finally:
            sys.meta_path.remove(finder)
    if "numpy.ma" not in sys.modules:
        np.ma = _NothingMasked("numpy.ma")


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
