"""What recordings hold, as the reference reader answered it, beside what ours finds; and the documented differences.

For each (entity, static, component) of a recording: the Arrow type, descriptor, timelines, number of rows and a digest
of all (times, value) pairs in sorted order. Chunk boundaries, row ids and the order of rows do not count.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from chunkmill.engine.chunk import Chunk
from chunkmill.readers import McapReader, ParquetReader, RrdReader

Key = tuple[str, bool, str]


class Held(NamedTuple):
    """One component of a recording: its types in all their variants, its rows as text, and its timelines that the
    reference does not have, which are in neither.
    """

    variants: list[dict[str, Any]]
    lines: list[str]
    timelines: set[str]


class Difference(NamedTuple):
    """Where a recording's content is not what the reference found.

    ``what``: ``missing`` (only the reference has it), ``extra`` (only ours), ``type``, ``nullability`` (the
    same type, but for what may be null), ``rows`` (how many), ``values``,
    ``repeats`` (a static row that the reference repeats), ``timeline:NAME`` (only ours is on it), ``error`` (the
    reference fails, ours reads), ``fails`` (only the reference reads).
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


def content(path: Path, golden: Any = ()) -> dict[Key, Held]:
    """What our reader finds in a recording; as text where the reference found such a component, else as empty lines."""
    known = {
        (e["entity"], e["static"], e["component"]): {name for v in e["variants"] for name in v["timelines"]}
        for e in golden
    }
    found: dict[Key, Held] = {}
    for chunk in _chunks(path):
        more = {line.name for line in chunk.data.timelines}
        for key, about, line in _lines(chunk.to_record_batch(), chunk.entity_path, chunk.is_static, known):
            held = found.setdefault(key, Held([], [], set()))
            held.timelines.update(more - known.get(key, more))
            if about not in held.variants:
                held.variants.append(about)
            held.lines.append(line)
    return found


def _chunks(path: Path) -> Iterator[Chunk]:
    if path.suffix not in (".rrd", ".rbl"):
        yield from (ParquetReader if path.suffix == ".parquet" else McapReader)(path).stream()
        return
    reader = RrdReader(path)
    for store in [*reader.recordings(), *reader.blueprints()]:
        yield from reader.stream(store=store)


def _lines(
    batch: pa.RecordBatch, entity: str, static: bool, known: dict[Key, set[str]]
) -> Iterator[tuple[Key, dict[str, Any], str]]:
    """Each value that is not null: its component, what the component is, and times and value as text."""
    fields = {name: batch.schema.field(name) for name in batch.schema.names}
    about = {name: {k.decode(): v.decode() for k, v in (f.metadata or {}).items()} for name, f in fields.items()}
    index = sorted(name for name in fields if about[name].get("rerun:kind") == "index")
    called = {name: about[name].get("rerun:index_name") or name for name in index}
    times = {name: batch.column(name).cast(pa.int64()).to_pylist() for name in index}
    for name, one in about.items():
        if one.get("rerun:kind") in ("index", "control"):
            continue
        key = entity, static, one.get("rerun:component") or name
        shared = [i for i in index if key not in known or called[i] in known[key]]
        variant = {
            "type": str(fields[name].type),
            "archetype": one.get("rerun:archetype"),
            "component_type": one.get("rerun:component_type"),
            "timelines": {called[i]: str(fields[i].type) for i in shared},
        }
        if key not in known:
            yield from repeat((key, variant, ""), len(batch) - batch.column(name).null_count)
            continue
        for row, value in enumerate(_values(batch.column(name))):
            if value is not None:
                yield key, variant, f"{'|'.join(str(times[i][row]) for i in shared)}={value}"


def _values(column: pa.Array) -> Iterator[str | None]:
    """The rows of a column as text; one long list of integers by the digest of its bytes."""
    inner = getattr(column.type, "value_type", None)
    blobs = inner is not None and pa.types.is_list(inner) and pa.types.is_integer(inner.value_type)
    for scalar in column:
        if not scalar.is_valid:
            yield None
        elif blobs and len(scalar.values) == 1 and scalar.values[0].is_valid and _is_long(scalar.values[0].values):
            raw = scalar.values[0].values.to_numpy(zero_copy_only=False).tobytes()
            size = len(scalar.values[0].values)
            yield f"[#{size}:{hashlib.blake2b(raw, digest_size=12).hexdigest()}]"
        else:
            yield str(scalar.value) if pa.types.is_temporal(column.type) else _text(scalar.as_py())


def _is_long(values: pa.Array) -> bool:
    return len(values) > 64 and not values.null_count


def _text(value: Any) -> str:
    """A value in one form: floats by their bits, bytes by their digest, mappings in the order of their fields."""
    if isinstance(value, float):
        return "f" + (struct.pack(">d", value).hex() if value == value else "nan")
    if isinstance(value, bytes):
        return f"b{len(value)}:{hashlib.blake2b(value, digest_size=12).hexdigest()}"
    if isinstance(value, dict):
        return "{" + ",".join(f"{k}:{_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_text, value)) + "]"
    return repr(value)


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
            yield from (Difference(*name, f"timeline:{line}") for line in sorted(ours[key].timelines))
            yield from _one(name, theirs[key], ours[key], static=static)


def _one(name: tuple[str, str, str], theirs: dict[str, Any], ours: Held, *, static: bool) -> Iterator[Difference]:
    if _sorted(theirs["variants"]) != _sorted(ours.variants):
        alike = _sorted(theirs["variants"], nulls=False) == _sorted(ours.variants, nulls=False)
        detail = f"{theirs['variants']} became {ours.variants}"
        yield Difference(*name, "nullability" if alike else "type", detail)
    if _digest(ours.lines) == theirs["digest"]:
        return
    rows, times = len(ours.lines), theirs["rows"]
    if static and len(set(ours.lines)) == 1 and _digest(ours.lines[:1] * times) == theirs["digest"]:
        yield Difference(*name, "repeats", f"{times} times, not {rows}")
    elif rows != times:
        yield Difference(*name, "rows", f"{times} became {rows}")
    else:
        yield Difference(*name, "values", f"of {rows} rows")


def _sorted(variants: Sequence[dict[str, Any]], *, nulls: bool = True) -> list[str]:
    texts = [json.dumps(variant, sort_keys=True) for variant in variants]
    return sorted(text if nulls else text.replace(" not null", "") for text in texts)


def _digest(lines: Sequence[str]) -> str:
    return hashlib.blake2b("\n".join(sorted(lines)).encode(), digest_size=16).hexdigest()


def documented(page: Path, release: str) -> list[Documented]:
    """Return the rows of the documentation's table of differences from a release of the reference."""
    text = page.read_text(encoding="utf-8").partition(f"\n## Rerun {release}\n")[2].partition("\n## ")[0]
    rows = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 5 and cells[0].startswith("`"):
            patterns = [" ".join(re.findall(r"`([^`]*)`", cell)) or "*" for cell in cells[:4]]
            rows.append(Documented(*patterns, cells[4]))
    return rows
