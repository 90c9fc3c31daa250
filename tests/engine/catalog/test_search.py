"""Search indexes of datasets: vectors and words are found as by a look at every one that is live."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill import Chunk, LazyChunkStream
from chunkmill.engine.catalog import CatalogClient, DatasetEntry, NotFoundError
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.errors import ReadError, UsageError
from chunkmill.engine.lance import indexes
from chunkmill.engine.rrd import digest_of

VECTOR, LIST, TEXT = "/emb:Emb:vec", "/flat:vec", "/txt:TextDocument:text"
DIMENSION = 32


def vectors(seed: int, count: int, dimension: int = DIMENSION) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).normal(size=(count, dimension)).astype(np.float32)


def rrd(path: Path, seed: int, texts: Sequence[str], id_: str | None = None) -> str:
    """A recording with vectors in two forms, texts and numbers, at frames from 0."""
    count = len(texts)
    some = vectors(seed, count)
    ends = pa.array(range(count + 1), pa.int32())
    fixed = pa.ListArray.from_arrays(ends, pa.FixedSizeListArray.from_arrays(some.ravel(), DIMENSION))
    lists = pa.array([row.tolist() for row in some], pa.list_(pa.float32()))
    frame = {"frame": pa.array(range(count))}
    chunks = [
        Chunk.build("/emb", frame, [(ComponentDescriptor("Emb:vec"), fixed)]),
        Chunk.build("/flat", frame, [(ComponentDescriptor("vec"), lists)]),
        Chunk.build("/txt", frame, [(ComponentDescriptor("TextDocument:text"), pa.array([[t] for t in texts]))]),
        Chunk.build("/sc", frame, [(ComponentDescriptor("Scalars:scalars"), pa.array([[0.5]] * count))]),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    LazyChunkStream.from_iter(chunks).write_rrd(path, application_id="tests", recording_id=id_ or path.stem)
    return str(path)


@pytest.fixture
def dataset(tmp_path: Path) -> DatasetEntry:
    made = CatalogClient(str(tmp_path / "lake")).create_dataset("drives")
    for seed in range(3):
        made.register(rrd(tmp_path / f"r{seed}.rrd", seed, [f"frame {i} of r{seed}" for i in range(20)])).wait()
    return made


def nearest(dataset: DatasetEntry, query: Any, column: str = VECTOR, k: int = 5) -> list[tuple[str, int, float]]:
    found = dataset.search_vector(query, column, k).to_pydict()
    return list(zip(found["rerun_segment_id"], found["frame"], np.round(found["_distance"], 4).tolist(), strict=True))


def brute(live: dict[str, int], query: Any, k: int = 5, metric: str = "cosine") -> list[tuple[str, int, float]]:
    rows = []
    for id_, seed in live.items():
        for frame, vector in enumerate(vectors(seed, 20)):
            cosine = 1 - float(vector @ query) / float(np.linalg.norm(vector) * np.linalg.norm(query))
            distance = cosine if metric == "cosine" else float(((vector - query) ** 2).sum())
            rows.append((distance, id_, frame))
    return [(id_, frame, round(distance, 4)) for distance, id_, frame in sorted(rows)[:k]]


def same(one: Sequence[tuple[str, int, float]], other: Sequence[tuple[str, int, float]]) -> bool:
    return [r[:2] for r in one] == [r[:2] for r in other] and np.allclose(
        [r[2] for r in one], [r[2] for r in other], atol=2e-4
    )


@pytest.mark.parametrize(("column", "metric"), [(VECTOR, "Cosine"), (LIST, "L2")])
def test_the_nearest_vectors_are_found(dataset: DatasetEntry, column: str, metric: Any) -> None:
    dataset.create_vector_search_index(column=column, time_index="frame", distance_metric=metric)
    live = {f"r{seed}": seed for seed in range(3)}
    for query in vectors(99, 5):
        assert same(nearest(dataset, query, column), brute(live, query, metric=metric.lower()))


@pytest.mark.heavy
def test_what_changes_later_counts_before_and_after_upkeep(dataset: DatasetEntry, tmp_path: Path) -> None:
    dataset.create_vector_search_index(column=VECTOR, time_index="frame")
    dataset.create_fts_search_index(column=TEXT, time_index="frame")
    query = vectors(99, 1)[0]
    dataset.register(rrd(tmp_path / "r7.rrd", 7, [f"frame {i} of r7" for i in range(20)])).wait()
    dataset.unregister(segments_to_drop=["r0"])
    dataset.register(rrd(tmp_path / "again" / "r1.rrd", 8, ["written anew"] * 20)).wait()
    live = {"r1": 8, "r2": 2, "r7": 7}
    for retrain in (None, False, True, False):
        if retrain is not None:
            dataset.do_maintenance(optimize_indexes=True, retrain_indexes=retrain)
        assert same(nearest(dataset, query), brute(live, query))
        assert nearest(dataset, query, k=1000)[:3] == nearest(dataset, query, k=3)
        assert len(nearest(dataset, query, k=1000)) == 60
        found = dataset.search_fts("r0 r1 r7 anew", TEXT).to_pydict()
        assert sorted(set(found["rerun_segment_id"])) == ["r1", "r7"]
        assert len(found["frame"]) == 40
    assert json.loads(dataset.list_search_indexes()[0].statistics)["num_unindexed_rows"] in (0, 60)
    tables = list((Path(str(dataset.__fspath__())) / "search" / "tables").iterdir())
    dataset.create_vector_search_index(column=VECTOR, time_index="frame")
    dataset.do_maintenance(cleanup_before=datetime.now(UTC), unsafe_allow_recent_cleanup=True)
    assert len(tables) == len(list((Path(str(dataset.__fspath__())) / "search" / "tables").iterdir())) == 2
    assert same(nearest(dataset, query), brute(live, query))


@pytest.mark.heavy
def test_words_are_those_that_a_scan_finds(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    words = [
        "Rain",
        "rains",
        "raining",
        "the",
        "fog",
        "fög",
        "x-ray",
        "No.7",
        "42",
        "robot's",
        "a" * 60,
        "être",
        "RAIN",
    ]
    texts = [" ".join(random.choice(words, random.integers(0, 6))) for _ in range(600)]
    dataset = CatalogClient(str(tmp_path / "lake")).create_dataset("texts")
    for part in range(3):
        dataset.register(rrd(tmp_path / f"p{part}.rrd", part, texts[200 * part : 200 * part + 200])).wait()
        if part == 1:
            dataset.create_fts_search_index(column=TEXT, time_index="frame")

    def of(text: str) -> set[str]:
        plain = unicodedata.normalize("NFKD", text.lower())
        return set(re.findall(r"[^\W_]+", "".join(c for c in plain if not unicodedata.combining(c))))

    for query in [*words, "fog 42", "nothing", "", "rain THE", "a"]:
        found = dataset.search_fts(query, TEXT).to_pydict()
        there = {(f"p{i // 200}", i % 200) for i, text in enumerate(texts) if of(text) & of(query)}
        assert set(zip(found["rerun_segment_id"], found["frame"], strict=True)) == there, query
        assert len(found["frame"]) == len(there)


def test_what_the_calls_give(tmp_path: Path) -> None:
    dataset = CatalogClient(str(tmp_path / "lake")).create_dataset("emb")
    texts = [f"note {i} about {'rain' if i % 5 == 0 else 'sun'}" for i in range(20)]
    assert dataset.register(rrd(tmp_path / "emb.rrd", 1, texts)).wait().segment_ids == ["emb"]
    columns = {field.name: str(field.type) for field in dataset.arrow_schema()}
    assert columns[VECTOR] == "list<item: fixed_size_list<item: float>[32]>"
    assert columns[TEXT] == "list<item: string>"
    dataset.create_fts_search_index(column=TEXT, time_index="frame")
    dataset.create_fts_search_index(column=TEXT, time_index="frame")  # there it "already exists"
    made = dataset.create_vector_search_index(column=VECTOR, time_index="frame")
    told = "'/emb:Emb:vec' on 'frame': VectorIvfPq { num_sub_vectors: 16, metric: cosine }"
    assert repr(made) == f"IndexingResult(index={told})"
    found = dataset.search_vector(vectors(1, 20)[4], VECTOR, 3)
    assert str(found.schema().field("_distance").type) == "float"
    distances = found.to_pydict()["_distance"]
    assert len(distances) == 3
    assert distances == sorted(distances)
    assert abs(distances[0]) < 1e-6
    assert dataset.search_vector(vectors(1, 20)[4].tolist(), VECTOR, 2).count() == 2
    with pytest.raises(ValueError, match="the query has 2 numbers, but vectors of /emb:Emb:vec have 32"):
        dataset.search_vector([1.0, 2.0], VECTOR, 3)
    with pytest.raises(NotFoundError, match="Component path '/sc:Scalars:scalars' not found"):
        dataset.search_vector([1.0], "/sc:Scalars:scalars", 3)
    words = dataset.search_fts("rain", TEXT)
    assert str(words.schema().field("_score").type) == "float"
    assert len(set(words.to_pydict()["_score"])) == 1
    assert words.count() == 4
    assert dataset.search_fts("rain sun", TEXT).count() == 20
    assert dataset.search_fts("nothing", TEXT).count() == 0
    assert len(dataset.list_search_indexes()) == 2
    assert repr(dataset.delete_search_indexes(VECTOR)) == f"[IndexConfig({told})]"
    assert dataset.delete_search_indexes(VECTOR) == []


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda d: d.create_fts_search_index(column="/no:pe", time_index="frame"),
            LookupError,
            "Could not find column",
        ),
        (lambda d: d.create_fts_search_index(column=TEXT, time_index="nope"), NotFoundError, "no index 'nope'"),
        (lambda d: d.create_fts_search_index(column=VECTOR, time_index="frame"), ValueError, "not texts"),
        (
            lambda d: d.create_fts_search_index(column=TEXT, time_index="frame", base_tokenizer="zzz"),
            ValueError,
            "base_tokenizer='zzz': .*unknown base tokenizer zzz.* Give 'simple', 'whitespace' or 'raw'",
        ),
        (
            lambda d: d.create_fts_search_index(column=TEXT, time_index="frame", store_position="yes"),
            TypeError,
            "store_position",
        ),
        (lambda d: d.create_vector_search_index(column=TEXT, time_index="frame"), ValueError, "not vectors"),
        (
            lambda d: d.create_vector_search_index(column=VECTOR, time_index="frame", num_sub_vectors=5),
            ValueError,
            "does not divide",
        ),
        (
            lambda d: d.create_vector_search_index(column=VECTOR, time_index="frame", distance_metric="hamming"),
            ValueError,
            "Hamming",
        ),
        (lambda d: d.search_vector([1.0] * 32, VECTOR, 0), ValueError, "top_k"),
        (lambda d: d.search_vector([[1.0]], TEXT, 1), NotFoundError, "search indexes"),
        (lambda d: d.delete_search_indexes("/no:pe"), LookupError, "Could not find"),
        (lambda d: d.search_fts(5, TEXT), TypeError, "query"),
    ],
)
@pytest.mark.heavy
def test_calls_that_are_wrong(dataset: DatasetEntry, call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call(dataset)
    assert not [path for path in Path(os.fspath(dataset), "search").rglob("*") if path.is_file()]
    assert dataset.list_search_indexes() == []


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda d: d.create_fts_search_index(column="/a:no", time_index="t", base_tokenizer="zz"), UsageError, "zz"),
        (
            lambda d: d.create_vector_search_index(column="/a:no", time_index="t", num_sub_vectors=0),
            UsageError,
            "not 0",
        ),
        (
            lambda d: d.create_vector_search_index(column="/a:no", time_index="t", target_partition_num_rows=0),
            UsageError,
            "target_partition_num_rows must be at least 1",
        ),
        (
            lambda d: d.create_vector_search_index(column="/a:no", time_index="t", distance_metric="zz"),
            ValueError,
            "zz",
        ),
    ],
)
def test_options_are_checked_before_anything_is_read(
    tmp_path: Path, call: Any, error: type[Exception], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = CatalogClient(str(tmp_path / "lake")).create_dataset("d")
    monkeypatch.setattr(DatasetEntry, "store_reader", lambda _: pytest.fail("it was read"))
    with pytest.raises(error, match=text):
        call(dataset)


def test_an_index_is_of_words_or_of_vectors(dataset: DatasetEntry) -> None:
    dataset.create_fts_search_index(column=TEXT, time_index="frame")
    with pytest.raises(ValueError, match="is for words"):
        dataset.search_vector([1.0], TEXT, 1)


def test_vectors_of_other_lengths_are_refused(tmp_path: Path) -> None:
    lists = pa.array([[1.0, 2.0], [], None, [1.0, 2.0, 3.0]], pa.list_(pa.float32()))
    chunk = Chunk.build("/a", {"frame": pa.array(range(4))}, [(ComponentDescriptor("vec"), lists)])
    LazyChunkStream.from_iter([chunk]).write_rrd(tmp_path / "a.rrd", application_id="t", recording_id="a")
    dataset = CatalogClient(str(tmp_path / "lake")).create_dataset("d")
    dataset.register(str(tmp_path / "a.rrd")).wait()
    with pytest.raises(ValueError, match="vectors of 3 and of 2 numbers"):
        dataset.create_vector_search_index(column="/a:vec", time_index="frame", num_sub_vectors=1)
    assert dataset.list_search_indexes() == []


def test_bytes_are_compared_by_their_bits(tmp_path: Path) -> None:
    rows = [[0, 0], [255, 0], [1, 1]]
    vectors_ = pa.array([[row] for row in rows], pa.list_(pa.list_(pa.uint8(), 2)))
    chunk = Chunk.build("/a", {"frame": pa.array(range(3))}, [(ComponentDescriptor("vec"), vectors_)])
    LazyChunkStream.from_iter([chunk]).write_rrd(tmp_path / "a.rrd", application_id="t", recording_id="a")
    dataset = CatalogClient(str(tmp_path / "lake")).create_dataset("d")
    dataset.register(str(tmp_path / "a.rrd")).wait()
    dataset.create_vector_search_index(column="/a:vec", time_index="frame", distance_metric="Hamming")
    found = dataset.search_vector([0, 1], "/a:vec", 3).to_pydict()
    assert list(zip(found["frame"], found["_distance"], strict=True)) in (
        [(0, 1.0), (2, 1.0), (1, 9.0)],
        [(2, 1.0), (0, 1.0), (1, 9.0)],
    )


def test_damage_is_told(dataset: DatasetEntry) -> None:
    dataset.create_vector_search_index(column=VECTOR, time_index="frame")
    home = Path(str(dataset.__fspath__())) / "search"
    covered = next(path for path in (home / "made").iterdir() if path.suffix == ".arrow")
    kept = covered.read_bytes()
    covered.write_bytes(kept[:-9] + b"x" + kept[-8:])
    with pytest.raises(ReadError, match="search index"):
        dataset.search_vector([0.0] * 32, VECTOR, 1)
    covered.write_bytes(kept)
    version = max((home / "versions").iterdir())
    newer = version.with_name("00000099.json")
    newer.write_bytes(version.read_bytes())
    with pytest.raises(ReadError, match=r"it has the content of version \d+"):
        dataset.list_search_indexes()
    newer.unlink()
    data = json.loads(version.read_bytes())
    del data["number"], data["digest"]  # as versions were that did not say their number
    earlier = {**data, "digest": digest_of(json.dumps(data, sort_keys=True).encode()).hex()}
    version.write_bytes(json.dumps(earlier).encode())
    assert len(dataset.list_search_indexes()) == 1
    version.write_bytes(version.read_bytes().replace(b"Emb", b"Emc", 1))
    with pytest.raises(ReadError, match="digest"):
        dataset.list_search_indexes()


def test_cells_that_are_no_vectors_have_no_row_and_a_list_has_one_for_each_that_is(tmp_path: Path) -> None:
    cells = [[[1, 2], None, [0, 1]], None, [], [[1, None]], [[4, 5]]]
    vec = pa.array(cells, pa.list_(pa.list_(pa.float32(), 2)))
    chunks = [
        Chunk.build("/a", {"at": pa.array(range(5), pa.duration("ns"))}, [(ComponentDescriptor("vec"), vec)]),
        Chunk.build("/a", {"other": pa.array(range(5))}, [(ComponentDescriptor("vec"), vec)]),
        Chunk.build("/a", {}, [(ComponentDescriptor("vec"), vec.slice(0, 1))]),
    ]
    dataset = CatalogClient(str(tmp_path / "lake")).create_dataset("d")
    for number in range(2):
        path = tmp_path / f"{number}.rrd"
        LazyChunkStream.from_iter(chunks).write_rrd(path, application_id="t", recording_id=path.stem)
        dataset.register(str(path)).wait()
        if number == 0:
            dataset.create_vector_search_index(
                column="/a:vec", time_index="at", num_sub_vectors=1, distance_metric="L2"
            )
    found = dataset.search_vector([1, 2], "/a:vec", 100).to_arrow_table()
    assert found.schema.field("at").type == pa.duration("ns")
    columns = (found["at"].cast(pa.int64()), found["instance_id"], found["_distance"])
    rows = list(zip(*(column.to_pylist() for column in columns), strict=True))
    assert rows == [row for row in [(0, 0, 0.0), (0, 2, 2.0), (4, 0, 18.0)] for _ in range(2)]
    with pytest.raises(ValueError, match="non-finite"):
        dataset.search_vector([1, float("nan")], "/a:vec", 1)


def test_an_index_of_few_vectors_is_trained_when_there_are_enough(
    dataset: DatasetEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "_FLAT_ROWS", 70)
    few = dataset.create_vector_search_index(column=VECTOR, time_index="frame").debug_info()
    assert few == {"num_indexed_rows": 0, "num_unindexed_rows": 60}
    dataset.register(rrd(tmp_path / "r3.rrd", 3, ["x"] * 280)).wait()
    dataset.do_maintenance(optimize_indexes=True)
    told = json.loads(dataset.list_search_indexes()[0].statistics)
    assert (told["num_indexed_rows"], told["num_unindexed_rows"]) == (340, 0)
    for frame in (0, 99, 279):
        assert nearest(dataset, vectors(3, 280)[frame], k=1)[0][:2] == ("r3", frame)


@pytest.mark.quick
def test_tasks_of_spark_make_the_rows(dataset: DatasetEntry, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHUNKMILL_EXECUTOR", "spark")
    monkeypatch.setattr("chunkmill.engine.catalog.search.indexes._TASK_BYTES", 1)
    tasks = len(spark.sparkContext.statusTracker().getJobIdsForGroup())
    dataset.create_vector_search_index(column=VECTOR, time_index="frame")
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup()) > tasks
    query = vectors(99, 1)[0]
    assert same(nearest(dataset, query), brute({f"r{seed}": seed for seed in range(3)}, query))
