"""Rows that times tell: chunks are read for the values that are asked for, and for no others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from chunkmill.engine.chunk import Chunk, ChunkData, ComponentDescriptor
from chunkmill.engine.errors import ReadError
from chunkmill.engine.query import HeldRecording, QueriedSegment, Query, queried_recordings, segments
from chunkmill.engine.query.layers import HeldChunks
from chunkmill.engine.rrd import Times, TimesWriter


class Source:
    """A segment of layers, of which some have times; ``read`` are the numbers of the chunks that were read of each."""

    def __init__(self, layers: list[tuple[Chunk, ...]], times: list[Times | None]) -> None:
        self._layers = [HeldChunks(chunks) for chunks in layers]
        self._times = times
        self.read: list[list[int]] = [[] for _ in layers]

    layer_names = ("base", "more")

    @property
    def has_times(self) -> bool:
        """Whether all layers have times."""
        return None not in self._times

    def references(self) -> list[Any]:
        """The layers, by whose reads is counted."""
        return [Counted(layer, read) for layer, read in zip(self._layers, self.read, strict=True)]

    def times(self) -> list[Times | None]:
        """Their times."""
        return self._times


class Counted:
    def __init__(self, layer: HeldChunks, read: list[int]) -> None:
        self.table = layer.table
        self._layer = layer
        self._read = read

    def read(self, rows: Any) -> list[ChunkData]:
        """Some chunks."""
        self._read += rows.tolist()
        return list(self._layer.read(rows))


def chunk(entity: str, times: list[int], values: list[Any]) -> Chunk:
    kind = pa.list_(pa.binary() if entity == "/image" else pa.int64())
    return Chunk.build(
        entity, {"t": pa.array(times)} if times else {}, [(ComponentDescriptor("c"), pa.array(values, kind))]
    )


IMAGES = tuple(chunk("/image", [time], [[b"x" * 9000]]) for time in range(10))
NUMBERS = (chunk("/number", list(range(10)), [[n] if n % 2 else None for n in range(10)]),)
MESH = (chunk("/mesh", [], [[1] * 9000]),)
EVERYTHING = (*IMAGES, *NUMBERS, *MESH)


def times_of(path: Path, chunks: tuple[Chunk, ...]) -> Times:
    writer = TimesWriter()
    for one in chunks:
        writer.add(one.data)
    pieces, directory = writer.finish()
    path.write_bytes(b"".join(pieces))
    return Times(str(path), 0, None, directory)


def asked(
    path: Path, *layers: tuple[Chunk, ...], told: tuple[tuple[Chunk, ...] | None, ...] | None = None, **query: Any
) -> tuple[QueriedSegment, Source]:
    """A segment of these layers; ``told`` are chunks whose times are taken for theirs (None: none)."""
    others = layers if told is None else told
    times = [None if some is None else times_of(path / f"{number}", some) for number, some in enumerate(others)]
    source = Source(list(layers), times)
    held = HeldRecording("seg", tuple(one for layer in layers for one in layer))
    _, (segment,) = queried_recordings(Query.of("t", **query), [held])
    return replace(segment, source=source), source


def rows_of(segment: QueriedSegment, *names: str, where: pc.Expression | None = None) -> list[Any]:
    return pa.Table.from_batches(
        segment.batches(names, where), pa.schema([segment.columns.arrow.field(n) for n in names])
    ).to_pylist()


def test_rows_and_index_values_need_no_chunk(tmp_path: Path) -> None:
    segment, source = asked(tmp_path, EVERYTHING)
    assert sum(batch.num_rows for batch in segment.batches([])) == 10
    assert [row["t"] for row in rows_of(segment, "t")] == list(range(10))
    assert len(rows_of(segment, "t", where=pc.field("/number:c").is_valid())) == 5
    assert len(rows_of(segment, "t", where=pc.field("/number:c").is_null() & (pc.field("t") > 5))) == 2
    assert len(rows_of(segment, "t", where=pc.field("/mesh:c").is_valid())) == 10
    assert source.read == [[]]


def test_columns_need_their_chunks(tmp_path: Path) -> None:
    segment, source = asked(tmp_path, EVERYTHING)
    assert [row["/number:c"] for row in rows_of(segment, "/number:c")] == [[n] if n % 2 else None for n in range(10)]
    assert source.read == [[10]]
    segment, source = asked(tmp_path, EVERYTHING)
    assert [len(row["/image:c"][0]) for row in rows_of(segment, "/image:c", where=pc.field("t") == 4)] == [9000]
    assert source.read == [[4]]


def test_given_values_need_the_chunks_of_their_answers(tmp_path: Path) -> None:
    segment, source = asked(tmp_path, IMAGES[:5] + IMAGES[7:], fill_latest_at=True, using_index_values=[-5, 2, 6])
    segments_large, segments._LARGE = segments._LARGE, 0
    try:
        (batch,) = segment.batches()
    finally:
        segments._LARGE = segments_large
    assert batch["/image:c"].is_valid().to_pylist() == [False, True, True]
    assert source.read == [[2, 4]]


def test_layers_with_and_without_times(tmp_path: Path) -> None:
    segment, source = asked(tmp_path, (*IMAGES, *MESH), NUMBERS, told=((*IMAGES, *MESH), None))
    assert [row["/number:c"] for row in rows_of(segment, "t", "/number:c")] == [
        [n] if n % 2 else None for n in range(10)
    ]
    assert source.read == [[], [0]]


@pytest.mark.parametrize(
    "other",
    [
        chunk("/number", list(range(9)), [[1]] * 9),
        chunk("/number", list(range(1, 11)), [[n] if n % 2 else None for n in range(10)]),
        chunk("/number", list(range(10)), [[1]] * 10),
        chunk("/number", list(range(10)), [None] * 9 + [[1]]),
    ],
)
def test_times_of_other_chunks_are_an_error(tmp_path: Path, other: Chunk) -> None:
    segment, _ = asked(tmp_path, EVERYTHING, told=((*IMAGES, other, *MESH),))
    with pytest.raises(ReadError, match=r"times of a recording|differs from the footer of its file"):
        rows_of(segment, "t", "/number:c")


def test_damaged_times_are_an_error(tmp_path: Path) -> None:
    times = times_of(tmp_path / "0", EVERYTHING)
    data = bytearray((tmp_path / "0").read_bytes())
    for place in np.random.default_rng(0).integers(0, times.directory.sizes[0], 20).tolist():  # before the statistics
        changed = data.copy()
        changed[place] ^= 1 << (place % 8)
        (tmp_path / "0").write_bytes(changed)
        again, source = asked(tmp_path, EVERYTHING)
        (tmp_path / "0").write_bytes(changed)
        with pytest.raises(ReadError, match="times of a recording") as caught:
            rows_of(again, "t")
        assert (caught.value.path, caught.value.offset, source.read) == (str(tmp_path / "0"), 0, [[]])


def test_windows_let_go_what_they_need_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each chunk is read once, also where the next windows are filled from it; the rows are the same."""
    slow = chunk("/number", [0, 5], [[0], [5]])
    segment, source = asked(tmp_path, (*IMAGES, slow), told=(None,), fill_latest_at=True)
    whole = rows_of(segment, "t", "/number:c")
    assert whole == [{"t": n, "/number:c": [n // 5 * 5]} for n in range(10)]
    source.read[0].clear()
    monkeypatch.setattr(segments, "WINDOW_BYTES", 10_000)
    assert rows_of(segment, "t", "/number:c") == whole
    assert sorted(source.read[0]) == list(range(11))
    pieces = segment.cut(20_000)
    assert len(pieces) > 2
    assert [row for piece in pieces for row in rows_of(piece, "t", "/number:c")] == whole


@pytest.mark.parametrize("fill", [False, True])
def test_ranges_that_lie_are_an_error(tmp_path: Path, fill: bool) -> None:
    """A footer may say that a chunk has no values where it has some: then rows would be missing."""
    lying = chunk("/number", [3, 40], [[1], [2]])
    segment, source = asked(tmp_path, NUMBERS, told=(None,), fill_latest_at=fill)
    assert len(source._layers[0].table) == 1
    source._layers[0].__dict__["held"] = (lying,)
    with pytest.raises(ReadError, match="differs from the footer of its file"):
        rows_of(segment, "t", "/number:c")
