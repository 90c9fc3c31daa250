"""Search indexes of a served lake, as clients up to SDK 0.33 make and search them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill import Chunk, LazyChunkStream
from chunkmill.engine.catalog import CatalogClient, DatasetEntry
from chunkmill.engine.catalog.server import ProtocolError, Status, protocol_error
from chunkmill.engine.catalog.server.protocol import part_of, rows_in
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.errors import ChunkmillError
from served import Caller

ROWS = 12
VECTORS = np.random.default_rng(1).normal(size=(ROWS, 8)).astype(np.float32)
TIME = {"timeline": {"name": "frame"}}
TEXT = {"entity_path": {"path": "/txt"}, "component": {"component": "TextDocument:text"}}
NOT_THERE = {"entity_path": {"path": "/nope"}, "component": {"component": "Emb:vec"}}
VECTOR = {"entity_path": {"path": "/emb"}, "component": {"component": "Emb:vec"}}
WORDS: dict[str, Any] = {"inverted": {"store_position": True, "base_tokenizer": "whitespace"}}
NEAREST: dict[str, Any] = {"vector": {"num_sub_vectors": 4, "distance_metrics": 1, "target_partition_num_rows": 100}}


@pytest.fixture
def dataset(tmp_path: Path) -> DatasetEntry:
    frame = {"frame": pa.array(range(ROWS))}
    vectors = pa.array([[row.tolist()] for row in VECTORS], pa.list_(pa.list_(pa.float32())))
    texts = pa.array([[f"frame {i} {'red' if i % 3 else 'blue'}"] for i in range(ROWS)])
    chunks = [
        Chunk.build("/emb", frame, [(ComponentDescriptor("Emb:vec"), vectors)]),
        Chunk.build("/txt", frame, [(ComponentDescriptor("TextDocument:text"), texts)]),
    ]
    LazyChunkStream.from_iter(chunks).write_rrd(tmp_path / "a.rrd", application_id="tests", recording_id="a")
    made = CatalogClient(tmp_path / "lake").create_dataset("drives")
    made.register(tmp_path / "a.rrd", executor="inline").wait()
    return made


@pytest.fixture
def call(dataset: DatasetEntry) -> Caller:
    return Caller(dataset.catalog, dataset)


def refused(call: Caller, name: str, **fields: Any) -> ProtocolError:
    with pytest.raises((ProtocolError, ChunkmillError)) as caught:
        call(name, **fields)
    return protocol_error(caught.value)


def found(call: Caller, column: dict[str, Any], query: Any, properties: dict[str, Any], **scan: Any) -> pa.Table:
    part = part_of(pa.table({"items": query}))
    answers = call("SearchDataset", column=column, query=part, properties=properties, scan_parameters=scan)
    return pa.concat_tables([rows_in(answer.data) for answer in answers])


def test_words_are_indexed_and_found(call: Caller, dataset: DatasetEntry) -> None:
    assert call("ListIndexes").indexes == []
    made = call("CreateIndex", config={"properties": WORDS, "column": TEXT, "time_index": TIME})
    assert made.index.properties.inverted.base_tokenizer == "whitespace"
    assert (made.index.column.entity_path.path, made.index.time_index.timeline.name) == ("/txt", "frame")
    assert json.loads(made.statistics_json)
    listed = call("ListIndexes")
    assert list(listed.indexes) == [made.index]
    assert [json.loads(text) for text in listed.statistics_json]
    rows = found(call, TEXT, ["blue"], {"inverted": {}})
    assert rows == dataset.search_fts("blue", "/txt:TextDocument:text").to_arrow_table()
    assert sorted(rows["frame"].to_pylist()) == [0, 3, 6, 9]
    # how a client asks for the columns, and pages
    empty = found(call, TEXT, ["blue"], {"inverted": {}}, limit_len=0)
    assert (len(empty), empty.schema) == (0, rows.schema)
    page = found(call, TEXT, ["blue"], {"inverted": {}}, limit_offset=1, limit_len=2, columns=["frame"])
    assert page == rows.select(["frame"]).slice(1, 2)
    again = refused(call, "CreateIndex", config={"properties": WORDS, "column": TEXT, "time_index": TIME})
    assert again.code is Status.ALREADY_EXISTS
    assert list(call("DeleteIndexes", column=TEXT).indexes) == [made.index]
    assert list(call("DeleteIndexes", column=TEXT).indexes) == []
    gone = refused(
        call, "SearchDataset", column=TEXT, query=part_of(pa.table({"q": ["x"]})), properties={"inverted": {}}
    )
    assert gone.code is Status.NOT_FOUND


def test_vectors_are_indexed_and_found(call: Caller) -> None:
    made = call("CreateIndex", config={"properties": NEAREST, "column": VECTOR, "time_index": TIME})
    assert made.index.properties.vector.num_sub_vectors == 4
    assert made.index.properties.vector.distance_metrics == 1
    query = VECTORS[7]
    order = np.argsort(((VECTORS - query) ** 2).sum(axis=1))
    as_rows = found(call, VECTOR, pa.array(query), {"vector": {"top_k": 3}})  # as the SDK sends it
    as_list = found(call, VECTOR, pa.array([query.tolist()], pa.list_(pa.float32())), {"vector": {"top_k": 3}})
    assert as_rows == as_list
    assert as_rows["frame"].to_pylist() == order[:3].tolist()
    assert len(found(call, VECTOR, pa.array(query), {"vector": {}})) == 10


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"properties": {"btree": {}}, "column": TEXT, "time_index": TIME}, Status.UNIMPLEMENTED, "plain values"),
        ({"properties": {}, "column": TEXT, "time_index": TIME}, Status.INVALID_ARGUMENT, "no properties"),
        ({"properties": WORDS, "time_index": TIME}, Status.INVALID_ARGUMENT, "'column'"),
        ({"properties": WORDS, "column": VECTOR, "time_index": TIME}, Status.INVALID_ARGUMENT, "not texts"),
        ({"properties": WORDS, "column": TEXT}, Status.NOT_FOUND, "there is no index ''"),
        ({"properties": WORDS, "column": NOT_THERE, "time_index": TIME}, Status.NOT_FOUND, "find column"),
        ({"properties": {"vector": {}}, "column": VECTOR, "time_index": TIME}, Status.INVALID_ARGUMENT, "metric 0"),
    ],
)
def test_indexes_that_cannot_be_made_are_refused(call: Caller, fields: dict[str, Any], code: Status, text: str) -> None:
    told = refused(call, "CreateIndex", config=fields)
    assert told.code is code
    assert text in told.text
    assert call("ListIndexes").indexes == []


def test_searches_that_are_wrong_are_refused(call: Caller) -> None:
    call("CreateIndex", config={"properties": WORDS, "column": TEXT, "time_index": TIME})
    text, words = part_of(pa.table({"items": ["red"]})), {"inverted": {}}
    for fields, code in (
        ({"query": text, "properties": {"vector": {"top_k": 1}}}, Status.INVALID_ARGUMENT),
        ({"query": text, "properties": {"btree": {}}}, Status.UNIMPLEMENTED),
        ({"query": text}, Status.INVALID_ARGUMENT),
        ({"query": part_of(pa.table({"a": ["x"], "b": ["y"]})), "properties": words}, Status.INVALID_ARGUMENT),
        ({"query": part_of(pa.table({"a": [5]})), "properties": words}, Status.INVALID_ARGUMENT),
        ({"query": text, "properties": words, "scan_parameters": {"filter": "frame > 1"}}, Status.UNIMPLEMENTED),
        ({"query": text, "properties": words, "scan_parameters": {"columns": ["x"]}}, Status.INVALID_ARGUMENT),
    ):
        assert refused(call, "SearchDataset", column=TEXT, **fields).code is code, fields
