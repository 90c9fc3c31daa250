"""What recordings hold, as the reference reader answered it, beside what ours finds; and the documented differences.

``content_digest.py`` of the wide collection gives the answers: for each (entity, static, component) the Arrow type,
descriptor, timelines, number of rows and a digest of all (times, value) pairs in sorted order.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

Key = tuple[str, bool, str]


class Held(NamedTuple):
    """One component of a recording: its types in all their variants, and its rows as text."""

    variants: list[dict[str, Any]]
    lines: list[str]


class Difference(NamedTuple):
    """Where a recording's content is not what the reference found.

    ``what``: ``missing`` (only the reference has it), ``extra`` (only ours), ``type``, ``rows`` (how many), ``values``,
    ``repeats`` (a static row that the reference repeats), ``error`` (the reference fails, ours reads), ``fails`` (only
    the reference reads).
    """

    recording: str
    entity: str
    component: str
    what: str
    detail: str = ""


class Documented(NamedTuple):
    """A row of the table of intended differences; all but ``why`` are patterns, several separated by spaces."""

    recordings: str
    entities: str
    components: str
    what: str
    why: str

    def covers(self, difference: Difference) -> bool:
        """Whether the difference is this one."""
        pairs = (
            (difference.recording, self.recordings),
            (difference.entity, self.entities),
            (difference.component, self.components),
            (difference.what, self.what),
        )
        return all(any(fnmatchcase(value, p) for p in patterns.split()) for value, patterns in pairs)


def load_tool(path: Path) -> ModuleType:
    """The program ``content_digest.py`` as a module."""
    spec = importlib.util.spec_from_file_location("content_digest", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def content(tool: ModuleType, path: Path) -> dict[Key, Held]:
    """What our reader finds in a recording."""
    found: dict[Key, Held] = {}
    for key, info, line in tool.pairs("chunkmill", str(path)):
        held = found.setdefault(key, Held([], []))
        if info not in held.variants:
            held.variants.append(info)
        held.lines.append(line)
    return found


def compared(recording: str, golden: Any, ours: dict[Key, Held]) -> Iterator[Difference]:
    """The differences of one recording that the reference could read."""
    theirs = {(e["entity"], e["static"], e["component"]): e for e in golden}
    for key in sorted(theirs.keys() | ours.keys()):
        entity, static, component = key
        name = (recording, entity, component)
        if key not in ours:
            yield Difference(*name, "missing", f"{theirs[key]['rows']} rows, static {static}")
        elif key not in theirs:
            yield Difference(*name, "extra", f"{len(ours[key].lines)} rows, static {static}")
        else:
            yield from _one(name, theirs[key], ours[key], static=static)


def _one(name: tuple[str, str, str], theirs: dict[str, Any], ours: Held, *, static: bool) -> Iterator[Difference]:
    if _sorted(theirs["variants"]) != _sorted(ours.variants):
        yield Difference(*name, "type", f"{theirs['variants']} became {ours.variants}")
    if _digest(ours.lines) == theirs["digest"]:
        return
    rows, times = len(ours.lines), theirs["rows"]
    if static and len(set(ours.lines)) == 1 and _digest(ours.lines[:1] * times) == theirs["digest"]:
        yield Difference(*name, "repeats", f"{times} times, not {rows}")
    elif rows != times:
        yield Difference(*name, "rows", f"{times} became {rows}")
    else:
        yield Difference(*name, "values", f"of {rows} rows")


def _sorted(variants: Sequence[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(variant, sort_keys=True) for variant in variants)


def _digest(lines: Sequence[str]) -> str:
    return hashlib.blake2b("\n".join(sorted(lines)).encode(), digest_size=16).hexdigest()


def documented(page: Path) -> list[Documented]:
    """The rows of the table "recording by recording" of the documentation."""
    text = page.read_text(encoding="utf-8").partition("## Recording by recording")[2]
    rows = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 5 and cells[0].startswith("`"):
            patterns = [" ".join(re.findall(r"`([^`]*)`", cell)) or "*" for cell in cells[:4]]
            rows.append(Documented(*patterns, cells[4]))
    return rows
