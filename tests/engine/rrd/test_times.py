"""Times files: what is read is what the chunks hold, for any chunks in any order, and damage is an error."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn, TimelineKind
from chunkmill.engine.errors import ReadError
from chunkmill.engine.rrd import (
    NEVER_CHANGES,
    EncodedPayload,
    MessageWriter,
    StoreEntry,
    Times,
    TimesDirectory,
    TimesWriter,
    Validity,
    digest_of,
    times,
)
from hypothesis import given, settings
from hypothesis import strategies as st

STORE = StoreEntry("recording", "tests", "times")
_CELLS = st.sampled_from([None, [], [1.0], [2.0, 3.0]])


@st.composite
def chunks(draw: st.DrawFn) -> Chunk:
    """A chunk of some rows, timelines and components, with nulls and empty lists."""
    rows = draw(st.integers(0, 6))
    extremes = st.one_of(st.integers(1 - 2**63, 2**63 - 1), st.integers(-5, 5))
    kinds = {"frame": "sequence", "stamp": "timestamp", "lap": "duration"}
    names = draw(st.lists(st.sampled_from(sorted(kinds)), unique=True))
    made = {name: draw(st.lists(extremes, min_size=rows, max_size=rows)) for name in names}
    types = {"sequence": "i8", "timestamp": "M8[ns]", "duration": "m8[ns]"}
    lines = [TimeColumn(n, **{kinds[n]: np.array(v, dtype="i8").view(types[kinds[n]])}) for n, v in made.items()]
    shape = draw(st.lists(st.sampled_from("abc"), unique=True, min_size=1))
    columns = []
    for name in shape:
        values = draw(st.one_of(st.just([[1.0]] * rows), st.lists(_CELLS, min_size=rows, max_size=rows)))
        columns.append(ComponentColumn(name, pa.array(values, pa.list_(pa.float64()))))
    chunk = Chunk.from_columns(draw(st.sampled_from(["/one", "/other"])), lines, columns)
    if rows > 2 and draw(st.booleans()):
        start = draw(st.integers(0, rows - 1))
        chunk = Chunk.from_data(chunk.data.slice(start, rows - start))
    return chunk


def expected(found: Sequence[Chunk], what: str) -> list[list[Any]]:
    """The row ids, index values or validity that chunks hold, from their rows."""
    result = []
    for chunk in found:
        data = chunk.data
        if what == "ids":
            result.append([row.as_py() for row in data.row_ids])
        elif what in ("frame", "stamp", "lap"):
            result.append(next((line.ticks.tolist() for line in data.timelines if line.name == what), []))
        else:
            values = next((c.values for c in data.components if c.descriptor.component == what), None)
            rows = [None] * data.num_rows if values is None else values.to_pylist()
            result.append([Validity.NULL if row is None else Validity(1 + bool(row)) for row in rows])
    return result


def read(where: Times, what: str, some: Any = None) -> list[list[Any]]:
    """The same from times."""
    if what == "ids":
        high, low = where.row_ids(some)
        assert high.ends.tolist() == low.ends.tolist()
        ids = [
            int(a).to_bytes(8, "big") + int(b).to_bytes(8, "big") for a, b in zip(high.values, low.values, strict=True)
        ]
        return [ids[a:b] for a, b in zip(high.ends, high.ends[1:], strict=False)]
    kinds = {"frame": TimelineKind.SEQUENCE, "stamp": TimelineKind.TIMESTAMP, "lap": TimelineKind.DURATION}
    column = where.index(what, kinds[what], some) if what in kinds else where.validity(what, some)
    return [column.values[a:b].tolist() for a, b in zip(column.ends, column.ends[1:], strict=False)]


def stored(path: Path, writer: TimesWriter) -> Times:
    """Times in a file, with other bytes before them."""
    pieces, directory = writer.finish()
    end = directory.to_bytes()
    body = b"".join([*pieces, end])
    path.write_bytes(b"manifest" + body)
    return Times.open(str(path), NEVER_CHANGES, 8, len(body), digest_of(end).hex())


@settings(max_examples=60, deadline=None)
@given(found=st.lists(chunks(), max_size=8), piece=st.sampled_from([1, 5, 1000]), data=st.data())
def test_what_is_read_is_what_chunks_hold(
    tmp_path_factory: pytest.TempPathFactory, found: list[Chunk], piece: int, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(times, "PIECE_ROWS", piece)
        writer = TimesWriter()
        for chunk in found:
            writer.add(chunk.data)
        where = stored(tmp_path_factory.mktemp("times") / "times", writer)
    assert len(where) == len(found)
    some = data.draw(st.lists(st.integers(0, len(found) - 1), max_size=10) if found else st.just([]))
    numbers = np.array(some, dtype=np.int64)
    assert where.num_rows(numbers).tolist() == [found[i].num_rows for i in some]
    for what in ("ids", "frame", "stamp", "lap", "a", "c"):
        assert read(where, what) == expected(found, what)
        assert read(where, what, numbers) == expected([found[i] for i in some], what)
    names = {line.name for chunk in found for line in chunk.data.timelines}
    assert {name for name, _ in where.timelines()} == names


def a_chunk(rows: int = 3, entity: str = "/e", first: int = 0) -> Chunk:
    return Chunk.from_columns(
        entity, [TimeColumn("tick", sequence=range(first, first + rows))], [ComponentColumn("v", [[1.0]] * rows)]
    )


def test_parts_are_joined_in_any_order(tmp_path: Path) -> None:
    found = [a_chunk(n + 1, first=10 * n) for n in range(5)]
    parts = []
    for number, some in enumerate((found[:2], found[2:])):
        file = io.BytesIO()
        writer = MessageWriter(file, STORE, path="part", digests=True, times=True)
        for chunk in some:
            writer.append(chunk)
        writer.flush()
        path = tmp_path / f"part-{number}"
        path.write_bytes(file.getvalue())
        part = Times.in_part(str(path))
        assert part is not None
        parts.append(part)
    order = np.array([4, 0, 2, 1, 3])
    directory = TimesDirectory.joined([part.directory for part in parts], order)
    end = directory.to_bytes()
    body = b"".join([*(part.read_pieces() for part in parts), end])
    (tmp_path / "whole").write_bytes(body)
    whole = Times.open(str(tmp_path / "whole"), NEVER_CHANGES, 0, len(body), digest_of(end).hex())
    assert read(whole, "ids") == expected([found[i] for i in order], "ids")
    assert whole.num_rows().tolist() == [5, 1, 3, 2, 4]


def test_chunks_that_pass_through_have_times(tmp_path: Path) -> None:
    chunk = a_chunk(4)
    first = tmp_path / "first"
    with first.open("wb", buffering=0) as file:
        writer = MessageWriter(file, STORE, path="part")
        entry = writer.append(chunk)
        writer.flush()
    from chunkmill.engine.rrd import FramedPayload

    lazy = Chunk.lazy(entry.header, FramedPayload(str(first), entry.offset, entry.size))
    second = io.BytesIO()
    writer = MessageWriter(second, STORE, path="part", digests=True, times=True)
    writer.append(lazy)
    writer.flush()
    (tmp_path / "second").write_bytes(second.getvalue())
    part = Times.in_part(str(tmp_path / "second"))
    assert part is not None
    assert read(part, "ids") == expected([chunk], "ids")


def test_a_part_with_a_chunk_that_is_damaged_has_no_times(tmp_path: Path) -> None:
    chunk = a_chunk(4)
    payload = EncodedPayload("source", 0, 4, 4, 1, b"junk")
    file = io.BytesIO()
    writer = MessageWriter(file, STORE, path="part", digests=True, times=True)
    writer.append(chunk)
    writer.append(Chunk.lazy(chunk.header, payload))
    writer.flush()
    (tmp_path / "part").write_bytes(file.getvalue())
    assert Times.in_part(str(tmp_path / "part")) is None
    (tmp_path / "none").write_bytes(b"")
    assert Times.in_part(str(tmp_path / "none")) is None


def test_every_byte_counts(tmp_path: Path) -> None:
    writer = TimesWriter()
    for n in range(3):
        writer.add(a_chunk(2, f"/{n}").data)
    pieces, directory = writer.finish()
    end = directory.to_bytes()
    body = b"".join([*pieces, end])
    path = tmp_path / "times"
    for at in range(len(body)):
        damaged = bytearray(body)
        damaged[at] ^= 1 << at % 8
        path.write_bytes(damaged)
        with pytest.raises(ReadError) as error:
            Times.open(str(path), NEVER_CHANGES, 0, len(body), digest_of(end).hex()).check()
        assert error.value.path == str(path)
        assert error.value.offset is not None
    for size in (0, 7, len(body) - 1):
        path.write_bytes(body[:size])
        with pytest.raises(ReadError):
            Times.open(str(path), NEVER_CHANGES, 0, len(body), digest_of(end).hex())
