"""Search in tables: vectors, words, both, and the indexes for them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.errors import ReadError, UnsupportedCallError, UsageError
from chunkmill.engine.tables import Table, connect, udf

ROWS, LENGTH = 400, 16
WORDS = ["ant", "bee", "cat", "dog", "emu", "fox", "gnu"]
CHANCE = np.random.default_rng(5)
VECTORS = CHANCE.normal(size=(ROWS, LENGTH)).astype(np.float32)
TEXTS = [" ".join(CHANCE.choice(WORDS, 3 + number % 9)) for number in range(ROWS)]


def rows_of(first: int, end: int) -> pa.Table:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS[first:end].ravel()), LENGTH)
    columns = {"id": range(first, end), "note": TEXTS[first:end], "vector": vectors}
    tags = [["a", str(number % 3)] for number in range(first, end)]
    types = {"id": pa.int64(), "note": pa.string(), "vector": pa.list_(pa.float32(), LENGTH)}
    return pa.table({**columns, "tags": tags}, pa.schema({**types, "tags": pa.list_(pa.string())}))


@udf
def negative(id: int) -> int:  # noqa: A002 (the column's name)
    return -id


@pytest.fixture
def table(tmp_path: Path) -> Table:
    lance.write_dataset(rows_of(0, 300), tmp_path / "t.lance", max_rows_per_file=150, enable_stable_row_ids=True)
    return Table(str(tmp_path / "t.lance"))


def nearest(query: np.ndarray, count: int, ids: Any = range(300)) -> list[int]:
    ids = np.array(list(ids))
    distances = ((VECTORS[ids] - query) ** 2).sum(1)
    return [int(ids[place]) for place in np.argsort(distances, kind="stable")[:count]]


def having(word: str, ids: Any = range(300)) -> set[int]:
    return {number for number in ids if word in TEXTS[number].split()}


# --- rankings


def test_the_nearest_vectors_are_found(table: Table) -> None:
    query = VECTORS[7] + 0.01
    found = table.search(query).to_arrow()
    assert found.schema.names == ["id", "note", "vector", "tags", "_distance"]
    assert found["id"].to_pylist() == nearest(query, 10)
    assert np.allclose(
        found["_distance"].to_numpy(), ((VECTORS[found["id"].to_numpy()] - query) ** 2).sum(1), atol=1e-4
    )
    some = table.search(query.tolist(), query_type="vector").where("id % 2 = 1").limit(5).offset(2)
    assert some.to_pandas()["id"].tolist() == nearest(query, 7, range(1, 300, 2))[2:]
    assert table.search(query).limit(0).to_arrow().num_rows == 0


def test_distances_are_those_that_are_asked_for(table: Table) -> None:
    found = table.search(VECTORS[3]).metric("cosine").limit(3).select({"id": "id"}).to_arrow().to_pydict()
    scaled = VECTORS[:300] / np.linalg.norm(VECTORS[:300], axis=1, keepdims=True)
    wanted = np.argsort(1 - scaled @ scaled[3])[:3]
    assert found["id"] == wanted.tolist() and found["_distance"][0] == pytest.approx(0, abs=1e-5)


def test_columns_are_sql_and_functions_of_what_is_found(table: Table) -> None:
    query = table.search(VECTORS[7]).limit(2).with_row_id()
    found = query.select({"more": "id + 1", "less": negative, "far": "_distance"}).to_arrow().to_pydict()
    ids = nearest(VECTORS[7], 2)
    assert (found["more"], found["less"]) == ([id_ + 1 for id_ in ids], [-id_ for id_ in ids])
    assert found["far"] == found["_distance"] and found["_rowid"] == ids
    assert query.with_row_id(False).select(["id"]).to_arrow().schema.names == ["id", "_distance"]


def test_words_are_found_with_an_index_and_beside_it(table: Table) -> None:
    with pytest.raises(UsageError, match="no column has an index of words"):
        table.search("fox").to_arrow()
    assert set(table.search("fox", fts_columns="note").limit(400).to_arrow()["id"].to_pylist()) == having("fox")
    table.create_fts_index("note")
    table.add(rows_of(300, 400))
    found = table.search("fox").limit(400).select(["id"]).to_arrow()
    assert set(found["id"].to_pylist()) == having("fox", range(400))
    assert found["_score"].to_pylist() == sorted(found["_score"].to_pylist(), reverse=True)
    assert len(table.search("fox").to_arrow()) == 10
    some = table.search("fox bee", query_type="fts").where("id >= 350").limit(400).to_arrow()
    assert set(some["id"].to_pylist()) == having("fox", range(350, 400)) | having("bee", range(350, 400))


def test_both_are_fused_by_their_ranks(table: Table) -> None:
    table.create_fts_index("note")
    query = VECTORS[11]
    found = table.search(query, query_type="hybrid").text("fox").limit(6).to_arrow()
    near, words = (table.search(one).limit(6).to_arrow()["id"].to_pylist() for one in (query, "fox"))
    shares: dict[int, float] = {}
    for ids in (near, words):
        for rank, id_ in enumerate(ids, 1):
            shares[id_] = shares.get(id_, 0) + 1 / (60 + rank)
    assert found.schema.names[-1] == "_relevance_score" and "_distance" not in found.schema.names
    assert found["id"].to_pylist() == sorted(shares, key=lambda id_: -np.float32(shares[id_]))[:6]
    same = table.search("fox", query_type="hybrid").vector(query).limit(4).offset(2)
    assert same.to_arrow()["id"].to_pylist() == found["id"].to_pylist()[2:]
    other = table.search(query_type="hybrid").vector(query).text("fox").rerank(k=1).limit(6).to_arrow()
    assert other["_relevance_score"][0].as_py() >= 0.5


class LastFirst:
    def rerank_hybrid(self, query: str, vector_results: pa.Table, fts_results: pa.Table) -> pa.Table:
        assert query == "fox" and "_score" in fts_results.column_names
        scores = pa.array(range(vector_results.num_rows, 0, -1), pa.float32())
        return vector_results.take(list(range(vector_results.num_rows))[::-1]).append_column("_relevance_score", scores)


def test_a_reranker_of_ones_own_ranks(table: Table) -> None:
    table.create_fts_index("note")
    query = table.search(VECTORS[11], query_type="hybrid").text("fox").limit(3)
    found = query.rerank(LastFirst()).select({"id": "id", "less": negative}).to_arrow().to_pydict()
    assert found["id"] == nearest(VECTORS[11], 3)[::-1] and found["less"] == [-id_ for id_ in found["id"]]


def test_answers_come_in_batches(table: Table) -> None:
    reader = table.search().select({"less": negative}).to_batches(64)
    sizes = [batch.num_rows for batch in reader]
    assert sum(sizes) == 300 and max(sizes) <= 64
    assert [batch.num_rows for batch in table.search(VECTORS[0]).limit(5).to_batches(2)] == [2, 2, 1]


def test_answers_come_as_frames_of_spark(spark: Any, table: Table) -> None:
    frame = table.search().where("id < 200").select({"id": "id", "less": negative}).to_spark()
    assert frame.rdd.getNumPartitions() >= 1 if hasattr(frame, "rdd") else True
    assert sorted(row.less for row in frame.collect()) == list(range(-199, 1))
    found = table.search(VECTORS[9]).limit(4).select(["id"]).to_spark().collect()
    assert [row.id for row in found] == nearest(VECTORS[9], 4)
    assert [row.id for row in table.search().offset(3).limit(2).select(["id"]).to_spark().collect()] == [3, 4]


@pytest.mark.parametrize("is_old", [False, True])
def test_a_search_sees_the_newest_version_and_a_table_made_anew(is_old: bool, tmp_path: Path) -> None:
    connection = connect(str(tmp_path / "db"))
    table = connection.create_table("t", rows_of(0, 300))
    if is_old:  # the folder's time alone is trusted
        os.utime(Path(table.uri) / "_versions", (1, 1))
    query = table.search(VECTORS[350]).limit(1).select(["id"])
    for _ in range(2):
        assert query.to_arrow()["id"].to_pylist() == nearest(VECTORS[350], 1)
    lance.write_dataset(rows_of(300, 400), table.uri, mode="append")
    assert query.to_arrow()["id"].to_pylist() == [350]
    table.delete("id = 350")
    assert query.to_arrow()["id"].to_pylist() != [350]
    connection.drop_table("t")
    with pytest.raises((LookupError, ReadError)):
        query.to_arrow()
    again = connection.create_table("t", rows_of(350, 360))
    again.add(rows_of(360, 370))
    again.delete("id = 369")
    assert query.to_arrow()["id"].to_pylist() == [350]


# --- indexes


@pytest.mark.parametrize("rows", [0, 20, 300])
@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_PQ", "IVF_HNSW_SQ", "IVF_HNSW_PQ"])
def test_indexes_of_vectors_work_on_few_rows(kind: Any, rows: int, tmp_path: Path) -> None:
    lance.write_dataset(rows_of(0, rows), tmp_path / "t.lance", enable_stable_row_ids=True)
    table = Table(str(tmp_path / "t.lance"))
    table.create_index(index_type=kind)
    table.add(rows_of(rows, rows + 50))
    query = table.search(VECTORS[rows + 3]).limit(5).refine_factor(100)
    assert query.to_arrow()["id"].to_pylist() == nearest(VECTORS[rows + 3], 5, range(rows + 50))
    table.optimize()
    assert query.to_arrow()["id"].to_pylist()[0] == rows + 3


def details(table: Table, column: str = "vector") -> dict[str, Any]:
    dataset = lance.dataset(table.uri)
    (found,) = [one for one in dataset.describe_indices() if one.field_names == [column]]
    statistics = dataset.stats.index_stats(found.name)
    told = {**statistics["indices"][0], **statistics["indices"][0].get("sub_index", {}), **found.details}
    return {**told, **told.get("params", {}), **told.get("runtime_hints", {})}


def test_every_parameter_of_a_vector_index_reaches_lance(table: Table) -> None:
    table.create_index(
        metric="cosine",
        num_partitions=3,
        num_sub_vectors=4,
        vector_column_name="vector",
        accelerator=None,
        index_type="IVF_HNSW_PQ",
        num_bits=4,
        max_iterations=7,
        sample_rate=33,
        m=6,
        ef_construction=44,
    )
    told = details(table)
    assert (
        told["index_type"] == "HNSW" and told["num_partitions"] == 3 and told["metric_type"].lower() in ("cosine", "l2")
    )
    assert (told["num_sub_vectors"], told["nbits"], told["m"], told["ef_construction"]) == (4, 4, 6, 44)
    assert (told["lance.ivf.max_iters"], told["lance.ivf.sample_rate"]) == ("7", "33")
    with pytest.raises(UsageError, match="already exists"):
        table.create_index(replace=False)
    table.create_index()
    assert details(table)["index_type"] == "PQ"
    assert (details(table)["nbits"], details(table)["num_sub_vectors"]) == (8, 1)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"metric": "far"}, "metric"),
        ({"metric": "hamming"}, "hamming"),
        ({"index_type": "IVF"}, "index_type"),
        ({"num_sub_vectors": 7}, r"dimension \(16\) must be divisible by num_sub_vectors \(7\)"),
        ({"num_sub_vectors": 4, "index_type": "IVF_FLAT"}, "num_sub_vectors"),
        ({"num_bits": 7}, "num_bits"),
        ({"num_bits": 4, "index_type": "IVF_HNSW_SQ"}, "num_bits"),
        ({"m": 5}, "m=5"),
        ({"m": 0, "index_type": "IVF_HNSW_SQ"}, "::m "),
        ({"ef_construction": 5}, "ef_construction"),
        ({"ef_construction": 1, "index_type": "IVF_HNSW_PQ"}, "ef_construction"),
        ({"max_iterations": 0}, "max_iters"),
        ({"sample_rate": 0}, "sample_rate"),
        ({"num_partitions": -1}, "num_partitions"),
        ({"accelerator": "abacus"}, "abacus"),
        ({"accelerator": "cuda"}, "accelerator"),
        ({"index_cache_size": 10}, "index_cache_size"),
        ({"vector_column_name": "note"}, "note"),
        ({"vector_column_name": "zz"}, "zz"),
    ],
)
def test_what_no_vector_index_can_be_is_refused(arguments: dict[str, Any], text: str, table: Table) -> None:
    version = table.version
    with pytest.raises(UsageError, match=text):
        table.create_index(**arguments)
    assert table.version == version


def test_an_index_of_vectors_that_are_all_null_is_refused(tmp_path: Path) -> None:
    nulls = pa.table({"vector": pa.nulls(9, pa.list_(pa.float32(), 4))})
    with pytest.raises(UsageError, match="with 0 vectors"):
        connect(str(tmp_path)).create_table("nulls", nulls).create_index(index_type="IVF_FLAT", num_partitions=1)


def test_every_parameter_of_an_index_of_words_reaches_lance(tmp_path: Path) -> None:
    texts = ["The Dogs ran", "a dög-house", "extraordinarily long", "les chiens"]
    lance.write_dataset(pa.table({"id": range(4), "note": texts}), tmp_path / "t.lance", enable_stable_row_ids=True)
    table = Table(str(tmp_path / "t.lance"))

    def found(word: str, **options: Any) -> set[int]:
        table.create_fts_index("note", replace=True, **options)
        return set(table.search(word).to_arrow()["id"].to_pylist())

    assert found("dogs") == {0} and found("dogs", lower_case=False) == set()
    assert found("dog") == set() and found("dog", stem=True) == {0}
    assert found("chien", stem=True, language="French") == {3}
    assert found("dog", ascii_folding=True) == {1}
    assert found("the") == {0} and found("the", remove_stop_words=True) == set()
    assert found("extraordinarily") == {2} and found("extraordinarily", max_token_length=5) == set()
    assert found("house") == {1} and found("dög-house", base_tokenizer="whitespace") == {1}
    assert found("house", base_tokenizer="whitespace") == set()
    assert found("les chiens", base_tokenizer="raw") == {3} and found("chiens", base_tokenizer="raw") == set()
    for given in (True, False):
        table.create_fts_index("note", replace=True, with_position=given)
        statistics = lance.dataset(table.uri).stats.index_stats("note_idx")
        assert statistics["indices"][0]["params"]["with_position"] is given
    with pytest.raises(UsageError, match="already exists"):
        table.create_fts_index("note")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"base_tokenizer": "nope"}, "tokenizer"),
        ({"language": "Klingon"}, "language"),
        ({"ordering_field_names": "id"}, "ordering_field_names"),
        ({"writer_heap_size": 1}, "writer_heap_size"),
        ({"tokenizer_name": "en_stem"}, "tokenizer_name"),
        ({"field_names": "zz"}, "zz"),
        ({"field_names": []}, "field_names"),
        ({"field_names": "id"}, "id"),
        ({"stem": "x"}, "stem|bool"),
    ],
)
def test_what_no_index_of_words_can_be_is_refused(arguments: dict[str, Any], text: str, table: Table) -> None:
    version = table.version
    with pytest.raises(UsageError, match=text):
        table.create_fts_index(**{"field_names": "note", **arguments})
    assert table.version == version
    with pytest.raises(TypeError, match="zz"):
        table.create_fts_index("note", zz=1)


@pytest.mark.parametrize(
    ("column", "kind", "where"),
    [("id", "BTREE", "id = 7"), ("id", "BITMAP", "id = 7"), ("tags", "LABEL_LIST", "array_has_any(tags, ['1'])")],
)
def test_indexes_of_values_serve_conditions(column: str, kind: Any, where: str, table: Table) -> None:
    before = table.search().where(where).to_arrow()
    table.create_scalar_index(column, index_type=kind)
    assert table.search().where(where).to_arrow().equals(before) and before.num_rows
    table.add(rows_of(300, 400))
    wanted = before.num_rows + (33 if column == "tags" else 0)
    assert table.search().where(where).to_arrow().num_rows == wanted
    assert "ScalarIndexQuery" in lance.dataset(table.uri).scanner(filter=where).explain_plan()
    with pytest.raises(UsageError, match="already exists"):
        table.create_scalar_index(column, index_type=kind, replace=False)


def test_what_no_index_of_values_can_be_is_refused(table: Table) -> None:
    for column, kind in (
        ("vector", "BTREE"),
        ("tags", "BITMAP"),
        ("id", "LABEL_LIST"),
        ("zz", "BTREE"),
        ("id", "TREE"),
    ):
        with pytest.raises(UsageError):
            table.create_scalar_index(column, index_type=kind)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("query", "arguments", "text"),
    [
        (VECTORS[0][:3], {}, "has 3 numbers, but vectors of 'vector' have 16"),
        ([float("nan")] * 16, {}, "non-finite"),
        (["a"] * 16, {}, "not a vector"),
        ("fox", {"query_type": "vector"}, "a vector"),
        (VECTORS[0], {"query_type": "fts"}, "text"),
        (VECTORS[0], {"query_type": "nearest"}, "query_type"),
        (None, {"query_type": "vector"}, "needs a query"),
        (VECTORS[0], {"vector_column_name": "note"}, "not vectors"),
        (VECTORS[0], {"vector_column_name": "zz"}, "zz"),
        ("fox", {"fts_columns": "zz"}, "zz"),
        ("fox", {"ordering_field_name": "id"}, "ordering_field_name"),
    ],
)
def test_what_no_search_can_be_is_refused(query: Any, arguments: dict[str, Any], text: str, table: Table) -> None:
    with pytest.raises(UsageError, match=text):
        table.search(query, **arguments).to_arrow()


def test_methods_that_a_query_has_not_are_refused(table: Table) -> None:
    for call in (
        lambda: table.search().metric("l2"),
        lambda: table.search("fox").nprobes(3),
        lambda: table.search().refine_factor(3),
        lambda: table.search(VECTORS[0]).rerank(),
        lambda: table.search(VECTORS[0]).nprobes(0),
        lambda: table.search(VECTORS[0]).metric("far"),
        lambda: table.search(VECTORS[0], query_type="hybrid").to_arrow(),
        lambda: table.search("fox", query_type="hybrid").to_arrow(),
        lambda: table.search(VECTORS[0]).select(["_score"]).to_arrow(),
    ):
        with pytest.raises(UsageError):
            call()
    with pytest.raises(UnsupportedCallError):
        table.search("fox", ordering_field_name="id")
