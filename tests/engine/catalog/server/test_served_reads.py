"""What a served lake tells: entries, tables, plans and chunks, by the service's handlers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunk_making import made
from chunkmill import __version__
from chunkmill.engine import LazyChunkStream
from chunkmill.engine.catalog import CatalogClient, DatasetEntry
from chunkmill.engine.catalog.server import ProtocolError, Status, protocol_error
from chunkmill.engine.catalog.server.protocol import entry_id_message, part_of, rows_in
from chunkmill.engine.errors import ChunkmillError
from chunkmill.engine.rrd import RrdFile, decode_batch
from chunkmill.engine.rrd.messages import ArrowMsg, tuid_bytes
from served import SEGMENTS, Caller, small_lake


def rows_of(responses: list[Any]) -> pa.Table:
    return pa.concat_tables(rows_in(response.data) for response in responses)


def refusal(function: Any, *args: Any, **kwargs: Any) -> ProtocolError:
    with pytest.raises((ProtocolError, ChunkmillError)) as caught:
        function(*args, **kwargs)
    return protocol_error(caught.value)


def chunks_of(responses: list[Any]) -> dict[str, pa.RecordBatch]:
    """The batches of chunks by their ids, each decoded."""
    import lz4.block

    found = {}
    for message in (chunk for response in responses for chunk in response.chunks):
        payload = message.payload
        if message.compression == 2:
            payload = lz4.block.decompress(payload, uncompressed_size=message.uncompressed_size)
        batch = decode_batch(payload, path="answer", offset=None, what="a chunk")
        found[f"{message.chunk_id.time_ns:016x}{message.chunk_id.inc:016x}"] = batch
    return found


def test_a_server_tells_its_version(call: Caller) -> None:
    told = call("Version")
    assert told.version == f"chunkmill {__version__}" and list(told.features) == ["per_segment_index_values"]
    build = told.build_info
    assert build.crate_name == "chunkmill"
    assert f"{build.version.major}.{build.version.minor}.{build.version.patch}" == __version__


def test_entries_are_found_by_kind_and_name(catalog: CatalogClient) -> None:
    call = Caller(catalog)

    def names(**fields: Any) -> set[str]:
        return {entry.name for entry in call("FindEntries", filter=fields).entries}

    hidden = catalog.get_dataset("drives").blueprint_dataset()
    assert hidden is not None
    assert names() == {"drives", "__entries", hidden.name}
    assert names(entry_kinds=[1]) == {"drives"}
    assert names(entry_kind=3) == {"__entries"}
    assert names(name="drives") == {"drives"}
    assert names(name="Drives") == set()
    assert refusal(names, entry_kinds=[0]).code is Status.INVALID_ARGUMENT


def test_an_entry_is_made_renamed_read_and_deleted(catalog: CatalogClient) -> None:
    call = Caller(catalog)
    made = call("CreateDatasetEntry", name="more").dataset
    assert made.dataset_handle.dataset_url
    assert made.details.id == entry_id_message(catalog.get_dataset("more").id)
    assert refusal(call, "CreateDatasetEntry", name="more").code is Status.ALREADY_EXISTS
    assert refusal(call, "CreateDatasetEntry", name="a/b").code is Status.INVALID_ARGUMENT
    id_ = {"id": {"time_ns": made.details.id.id.time_ns, "inc": made.details.id.id.inc}}
    call("UpdateEntry", id=id_, entry_details_update={"name": "other"})
    assert entry_id_message(catalog.get_dataset("other").id) == made.details.id
    call("DeleteEntry", id=id_)
    assert refusal(call, "DeleteEntry", id=id_).code is Status.NOT_FOUND


def test_header_and_body_must_name_the_same_entry(call: Caller, catalog: CatalogClient) -> None:
    other = catalog.create_dataset("other")
    told = refusal(call, "DeleteEntry", id=entry_id_message(other.id))
    assert told.code is Status.INVALID_ARGUMENT
    assert "mismatched entry ids" in told.text
    assert "other" in catalog.dataset_names()


def test_tables_of_segments_are_those_of_the_catalog(call: Caller, dataset: DatasetEntry) -> None:
    own = pa.table(dataset.segment_table())
    told = rows_of(call("ScanSegmentTable"))
    assert told.column_names == own.column_names
    assert told.sort_by("rerun_segment_id").to_pydict() == own.sort_by("rerun_segment_id").to_pydict()
    schema = pa.ipc.read_schema(pa.py_buffer(call("GetSegmentTableSchema").schema.arrow_schema))
    assert schema == told.schema
    one = rows_of(
        call(
            "ScanSegmentTable", columns=["rerun_segment_id"], segment_id_filter={"scan_only": {"segment_ids": ["two"]}}
        )
    )
    assert one.to_pydict() == {"rerun_segment_id": ["two"]}
    unknown = refusal(call, "ScanSegmentTable", columns=["nothing"])
    assert unknown.code is Status.INVALID_ARGUMENT
    assert "projected column 'nothing' not found" in unknown.text


def test_a_query_names_chunks_that_can_be_fetched(call: Caller, dataset: DatasetEntry) -> None:
    planned = call("QueryDataset", select_all_entity_paths=True)
    rows = rows_of(planned)
    assert sorted(rows["chunk_segment_id"].unique().to_pylist()) == sorted(SEGMENTS)
    chunks = chunks_of(call("FetchChunks", chunk_infos=[response.data for response in planned]))
    own = {c.id: c for name in SEGMENTS for c in dataset.segment_store(name).stream().to_chunks()}
    assert len(chunks) == len(own) == len(rows)
    for chunk in own.values():
        batch = chunks[str(chunk.id).removeprefix("chunk_").lower()]
        assert batch.num_rows == chunk.num_rows


def test_messages_of_chunks_name_their_segment(call: Caller) -> None:
    rows = rows_of(call("QueryDataset", select_all_entity_paths=True, segment_ids=[{"id": "two"}]))
    responses = call("FetchChunks", chunk_infos=[part_of(rows.select(["chunk_key"]))])
    assert {c.store_id.recording_id for r in responses for c in r.chunks} == {"two"}


def test_a_range_leaves_out_what_lies_outside(call: Caller, dataset: DatasetEntry) -> None:
    index = dataset.schema().index_columns()[0].name
    everything = {"all": {}}

    def found(**fields: Any) -> int:
        asked = {"timeline": index, "fill_mode": 1, "segments": everything, **fields}
        rows = rows_of(call("FindChunks", contents=everything, range=asked))
        assert rows["chunk_timeline_start"].null_count == 0
        return len(rows)

    assert found() == len(SEGMENTS)
    assert found(end_inclusive=-(2**62)) == 0
    assert found(start_inclusive=-(2**62)) == len(SEGMENTS)
    assert found(segments={"explicit": {"ids": [{"id": "one"}, {"id": "nobody"}]}}) == 1


def test_rows_are_those_of_an_entity_whichever_components_are_asked_for(call: Caller, dataset: DatasetEntry) -> None:
    index, column = dataset.schema().index_columns()[0].name, dataset.schema().component_columns()[0]
    asked = {"timeline": index, "fill_mode": 1, "segments": {"all": {}}}
    for ids in ([column.component], ["of:nothing"]):
        one = {"entity_path": {"path": column.entity_path}, "explicit": {"ids": ids}}
        assert len(rows_of(call("FindChunks", contents={"explicit": {"entities": [one]}}, range=asked))) == len(
            SEGMENTS
        )
        query = {"entity_paths": [{"path": column.entity_path}], "fuzzy_descriptors": ids}
        assert len(rows_of(call("QueryDataset", **query))) == len(SEGMENTS)


@pytest.mark.parametrize("key", [b"", b"x" * 36, b"../../etc/passwd".ljust(36), bytes(36)])
def test_a_key_that_nobody_made_opens_nothing(call: Caller, key: bytes) -> None:
    told = refusal(call, "FetchChunks", chunk_infos=[part_of(pa.table({"chunk_key": pa.array([key], pa.binary())}))])
    assert told.code in (Status.INVALID_ARGUMENT, Status.NOT_FOUND)


def test_a_row_behind_the_last_is_not_found(call: Caller) -> None:
    key = bytearray(rows_of(call("QueryDataset", select_all_entity_paths=True))["chunk_key"][0].as_py())
    key[-4:] = b"\x00\x00\xff\xff"
    table = pa.table({"chunk_key": pa.array([bytes(key)], pa.binary())})
    assert refusal(call, "FetchChunks", chunk_infos=[part_of(table)]).code is Status.NOT_FOUND


def test_keys_outlive_the_service_that_made_them(call: Caller, catalog: CatalogClient, dataset: DatasetEntry) -> None:
    rows = rows_of(call("QueryDataset", select_all_entity_paths=True))
    later = Caller(CatalogClient(catalog.url), dataset)
    assert len(chunks_of(later("FetchChunks", chunk_infos=[part_of(rows)]))) == len(rows)


def test_what_was_planned_is_read_though_it_was_unregistered_since(call: Caller, dataset: DatasetEntry) -> None:
    rows = rows_of(call("QueryDataset", select_all_entity_paths=True))
    dataset.unregister(segments_to_drop="two")
    assert len(chunks_of(call("FetchChunks", chunk_infos=[part_of(rows)]))) == len(rows)
    assert len(rows_of(call("QueryDataset", select_all_entity_paths=True))) == len(rows) - 1
    dataset.delete()
    assert refusal(call, "FetchChunks", chunk_infos=[part_of(rows)]).code is Status.NOT_FOUND


def test_a_damaged_chunk_is_not_handed_out(tmp_path: Path) -> None:
    catalog = small_lake(tmp_path)
    dataset = catalog.create_dataset("copied")
    dataset.register(tmp_path / "files" / "one.rrd", copy=True, executor="inline").wait()
    call = Caller(catalog, dataset)
    planned = call("QueryDataset", select_all_entity_paths=True)
    (shard,) = (Path(str(dataset.__fspath__())) / "shards").glob("*.rrd")
    data = bytearray(shard.read_bytes())
    where = data.index(b"chunk_", 200) if b"chunk_" in data[200:] else 300
    data[where + 1] ^= 1
    shard.write_bytes(data)
    told = refusal(call, "FetchChunks", chunk_infos=[response.data for response in planned])
    assert told.code is Status.DATA_LOSS


def test_chunks_of_all_sizes_come_as_they_lie_but_for_the_store_that_they_name(tmp_path: Path) -> None:
    sizes = (3, 400_000, 2, 2, 900_000, 1, 5)
    chunks = [made(range(size), entity=f"/of_{number}") for number, size in enumerate(sizes)]
    path = tmp_path / "many.rrd"
    LazyChunkStream.from_iter(chunks).write_rrd(path, application_id="tests", recording_id="in the file")
    catalog = CatalogClient(tmp_path / "lake")
    dataset = catalog.create_dataset("drives")
    dataset.register(path, executor="inline").wait()
    call = Caller(catalog, dataset)
    rows = rows_of(call("QueryDataset", select_all_entity_paths=True))
    responses = call("FetchChunks", chunk_infos=[part_of(rows)])
    fetched = [chunk for response in responses for chunk in response.chunks]
    assert len(fetched) == len(chunks)
    there = {entry.header.chunk_id: entry for entry in RrdFile(path).entries(RrdFile(path).stores()[0]) or ()}
    assert {tuid_bytes(chunk.chunk_id) for chunk in fetched} == there.keys()
    data = path.read_bytes()
    for chunk in fetched:
        entry = there[tuid_bytes(chunk.chunk_id)]
        lying = ArrowMsg.FromString(data[entry.offset : entry.offset + entry.size])
        assert chunk.SerializeToString(deterministic=True) == lying.SerializeToString(deterministic=True)


def test_the_manifest_of_a_segment_has_a_key_for_each_chunk(call: Caller) -> None:
    (response,) = call("GetRrdManifest", segment_id={"id": "one"})
    manifest = response.rrd_manifest
    rows = rows_in(manifest.data)
    assert manifest.store_id.recording_id == "one"
    assert len(manifest.sorbet_schema_sha256) == 32
    assert len(chunks_of(call("FetchChunks", chunk_infos=[part_of(rows.select(["chunk_id", "chunk_key"]))]))) == 1
    missing = refusal(call, "GetRrdManifest", segment_id={"id": "nobody"})
    assert missing.code is Status.NOT_FOUND
    assert "nobody" in missing.text


def test_parts_are_bounded_before_they_are_expanded() -> None:
    part = part_of(pa.table({"a": np.zeros(10_000, np.int64)}))
    assert rows_in(part).num_rows == 10_000
    part.uncompressed_size = 1 << 40
    assert refusal(rows_in, part).code is Status.INVALID_ARGUMENT
    part.uncompressed_size = 79_000
    assert refusal(rows_in, part).code is Status.INVALID_ARGUMENT
    part.encoder_version = 0
    assert refusal(rows_in, part).code is Status.INVALID_ARGUMENT
