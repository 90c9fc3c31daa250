"""Collecting in two steps: what is laid out where it lies, what is run into parts first, and what a store passes on."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chunk_making import content
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.errors import ReadError
from chunkmill.engine.optimisation import collect
from chunkmill.engine.rrd import VerifiedRun
from chunkmill.engine.store import ChunkStore, OptimizationProfile
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.engine.stream.source import ChunkListSource
from chunkmill.readers import RrdReader
from comparison import rerun_verify

OBJECT_STORE = OptimizationProfile.OBJECT_STORE


def scalars(path: str, start: int, rows: int = 10, *, static: bool = False) -> Chunk:
    times = [] if static else [TimeColumn("frame", sequence=range(start, start + rows))]
    return Chunk.from_columns(path, times, [ComponentColumn("x", [float(start + i) for i in range(rows)])])


def blob(path: str, start: int) -> Chunk:
    column = ComponentColumn("blob", pa.array([[os.urandom(70_000)]], pa.list_(pa.binary())))
    return Chunk.from_columns(path, [TimeColumn("frame", sequence=[start])], [column])


CHUNKS = [
    *(scalars(f"/{'abc'[i % 3]}", i * 10) for i in range(30)),
    *(blob("/camera", i) for i in range(5)),
    scalars("/s", 0, 1, static=True),
    scalars("/s", 1, 1, static=True),
]


@pytest.fixture
def rrd(tmp_path: Path) -> Path:
    """The chunks in an RRD with a footer."""
    path = tmp_path / "source.rrd"
    LazyChunkStream.from_iter(CHUNKS).write_rrd(path, application_id="a", recording_id="r", executor="inline")
    return path


@pytest.fixture
def works(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The works that were run; none is so small that one task takes both steps."""
    seen: list[Any] = []
    real = collect.run_work

    def spy(work: Any, *more: Any) -> Any:
        seen.append(work)
        return real(work, *more)

    monkeypatch.setattr(collect, "run_work", spy)
    monkeypatch.setattr(collect, "is_small", lambda _: False)
    return seen


def messages(path: Path) -> list[bytes]:
    """The chunks' messages and the footer of a file."""
    data, found, at, kind = path.read_bytes(), [], 12, -1
    while kind != 0:
        kind, size = struct.unpack_from("<QQ", data, at)
        if kind != 1:
            found.append(data[at : at + 16 + size])
        at += 16 + size
    return found


def kinds(works: list[Any]) -> list[str]:
    return [type(work).__name__ for work in works]


def layout(chunks: Any) -> list[str]:
    return sorted(f"{c.entity_path} {c.num_rows} {c.is_static} {c.header.timelines}" for c in chunks)


def expected() -> list[str]:
    """What one step gives of the chunks."""
    return layout(LazyChunkStream.from_iter(CHUNKS).collect(optimize=OBJECT_STORE))


def test_what_only_passes_on_is_laid_out_where_it_lies(rrd: Path, works: list[Any]) -> None:
    store = RrdReader(rrd).stream().filter(content="/**").collect(optimize=OBJECT_STORE)
    assert kinds(works) == ["EntityWork"]
    rrd.unlink()
    assert layout(store) == expected()
    assert content(store) == content(c for c in CHUNKS if c is not CHUNKS[-2])  # a static chunk that another overwrites


def test_what_operators_look_into_is_run_into_parts_and_nothing_else(rrd: Path, works: list[Any]) -> None:
    touched = RrdReader(rrd).stream().filter(content="/camera").map(lambda c: c.with_entity_path("/a"))
    store = LazyChunkStream.merge(RrdReader(rrd).stream().drop(content="/b"), touched).collect(optimize=OBJECT_STORE)
    assert kinds(works) == ["FirstStep", "EntityWork"]
    assert sum(task.size for task in works[0].tasks) < rrd.stat().st_size
    wanted = [c for c in CHUNKS if c.entity_path != "/b" and c is not CHUNKS[-2]]
    wanted += [c.with_entity_path("/a") for c in CHUNKS if c.entity_path == "/camera"]
    assert content(store) == content(wanted)


@pytest.mark.parametrize("change", ["gone", "another"])
def test_a_source_that_changes_between_the_steps(
    change: str, rrd: Path, works: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = collect.found_chunks

    def changing(*given: Any) -> Any:
        found = real(*given)
        rrd.unlink()
        if change == "another":
            others = (scalars(f"/{'abc'[i % 3]}", i * 10) for i in range(60))
            LazyChunkStream.from_iter(others).write_rrd(rrd, application_id="a", recording_id="r", executor="inline")
        return found

    monkeypatch.setattr(collect, "found_chunks", changing)
    with pytest.raises((ReadError, FileNotFoundError, ValueError), match=r"source\.rrd"):
        RrdReader(rrd).stream().collect(optimize=OBJECT_STORE)


def test_a_kept_store_is_laid_out_anew_from_where_it_lies(tmp_path: Path, works: list[Any]) -> None:
    kept = tmp_path / "kept"
    LazyChunkStream.from_iter(CHUNKS).collect(into=kept, optimize=OptimizationProfile(max_rows=5))
    works.clear()
    store = ChunkStore.open(kept).stream().collect(optimize=OBJECT_STORE)
    assert kinds(works) == ["EntityWork"]
    assert layout(store) == expected()
    shard = next((kept / "shards").iterdir())
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    with pytest.raises(ReadError, match="its digest differs"):
        ChunkStore.open(kept).stream().collect(optimize=OBJECT_STORE)


SEVERAL = {f"/{i}": (i % 7 + 1) << 22 for i in range(90)}


@pytest.mark.parametrize(
    ("costs", "cores", "tasks"),
    [({}, 2, 0), ({"/a": 1}, 2, 1), ({"/a": 1 << 40}, 2, 1), (SEVERAL, 1, 5), (SEVERAL, 4, 8), (SEVERAL, 64, 44)],
    ids=["none", "a small one", "a large one", "many", "for four cores", "for many cores"],
)
def test_tasks_hold_every_entity_once_and_cost_about_the_same(
    costs: dict[str, int], cores: int, tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect.os, "cpu_count", lambda: cores)
    groups = collect._grouped(costs)
    assert groups.keys() == costs.keys()
    loads = [sum(costs[p] for p, g in groups.items() if g == number) for number in set(groups.values())]
    assert not loads or max(loads) - min(loads) <= 2 * max(costs.values())
    assert len(loads) == tasks


class TestPassing:
    """A store's chunks on their way into an RRD."""

    @pytest.fixture
    def store(self) -> ChunkStore:
        return LazyChunkStream.from_iter(CHUNKS).collect(optimize=OBJECT_STORE)

    @pytest.fixture
    def copies(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
        """Whether each passage could be made."""
        seen: list[bool] = []
        real = VerifiedRun.copy

        def spy(self: VerifiedRun, *given: Any, **named: Any) -> bool:
            seen.append(real(self, *given, **named))
            return seen[-1]

        monkeypatch.setattr(VerifiedRun, "copy", spy)
        return iter([seen])

    @pytest.mark.parametrize(
        "change",
        [lambda s: s, lambda s: s.filter(content="/camera"), lambda s: s.filter(is_static=False).drop(content="/a")],
        ids=["all", "one entity", "some"],
    )
    @pytest.mark.parametrize("recording_id", ["scratch", "r" * 300])
    def test_it_is_the_same_as_chunk_by_chunk(
        self,
        recording_id: str,
        change: Callable[[LazyChunkStream], LazyChunkStream],
        store: ChunkStore,
        copies: Iterator[list[bool]],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def written(name: str) -> list[bytes]:
            stream = change(store.stream())
            report = stream.write_rrd(
                tmp_path / name, application_id="chunkmill", recording_id=recording_id, executor="inline"
            )
            assert report.bytes_passed > 0
            return messages(tmp_path / name)

        passed = written("passed.rrd")
        monkeypatch.setattr(ChunkListSource, "run_splits", lambda *_: None)
        assert written("by_chunk.rrd") == passed
        assert next(copies) == [True]
        rerun_verify(tmp_path / "passed.rrd")
        assert content(RrdReader(tmp_path / "passed.rrd").stream().to_chunks(executor="inline")) == content(
            change(LazyChunkStream.from_iter(list(store))).to_chunks(executor="inline")
        )

    def test_a_store_with_chunks_in_memory_is_written_chunk_by_chunk(
        self, store: ChunkStore, copies: Iterator[list[bool]], tmp_path: Path
    ) -> None:
        mixed = ChunkStore([*store, scalars("/more", 0)])
        mixed.write_rrd(tmp_path / "out.rrd", application_id="a", recording_id="r")
        assert next(copies) == []
        assert len(RrdReader(tmp_path / "out.rrd").store()) == len(mixed)

    def test_a_part_that_is_gone_is_missed(self, store: ChunkStore, tmp_path: Path) -> None:
        place = Path(next(iter(store)).payload.path)  # type: ignore[union-attr]
        place.unlink()
        with pytest.raises((ReadError, FileNotFoundError, ValueError), match=place.name):
            store.write_rrd(tmp_path / "out.rrd", application_id="a", recording_id="r")
        assert not (tmp_path / "out.rrd").exists()

    def test_damage_is_noticed_while_it_is_copied(
        self, store: ChunkStore, copies: Iterator[list[bool]], tmp_path: Path
    ) -> None:
        place = Path(next(iter(store)).payload.path)  # type: ignore[union-attr]
        data = bytearray(place.read_bytes())
        data[-100] ^= 1
        place.write_bytes(data)
        with pytest.raises(ReadError, match="its digest differs"):
            store.write_rrd(tmp_path / "out.rrd", application_id="a", recording_id="r")
        assert next(copies) == []
        assert not (tmp_path / "out.rrd").exists()
