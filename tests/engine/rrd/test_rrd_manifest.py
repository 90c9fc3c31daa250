"""The manifest: what is written is found again, what others write is read, what is wrong is refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from chunkmill.engine.chunk import Chunk, ComponentDescriptor, columns
from chunkmill.engine.errors import ReadError, ReadWarning, UnsupportedError, WriteError
from chunkmill.engine.rrd import ChunkEntry, RrdFile, RrdWriter
from chunkmill.engine.rrd.manifest_reading import column_name
from rrd_bytes import (
    SCALARS,
    STORE,
    content,
    drop_columns,
    rrd_bytes,
    scalars,
    static,
    undigested,
    with_footer,
    with_manifest,
    with_sorbet_schema,
    write_rrd,
)

F64 = pa.list_(pa.float64())


def chunk(entity: str, timelines: dict[str, pa.Array], **components: list[object]) -> Chunk:
    return Chunk.build(
        entity,
        timelines,
        [(ComponentDescriptor(n.replace("__", ":")), pa.array(v, F64)) for n, v in components.items()],
    )


def frame(*times: int) -> pa.Array:
    return pa.array(times, pa.int64())


def stamp(*times: int) -> pa.Array:
    return pa.array(times, pa.timestamp("ns"))


def save(tmp_path: Path, data: bytes) -> RrdFile:
    path = tmp_path / "x.rrd"
    path.write_bytes(data)
    return RrdFile(path)


def entries(file: RrdFile) -> list[ChunkEntry]:
    (store,) = file.stores()
    found = file.entries(store)
    assert found is not None
    return found


# --- names


@pytest.mark.parametrize(
    ("timeline", "component", "archetype", "suffix", "name"),
    [
        ("my-rel time", "Points3D:colors", "rerun.archetypes.Points3D", "start", "my_rel_time:Points3D:colors:start"),
        (None, "Panel:state", "rerun.blueprint.archetypes.Panel", "has_static_data", "Panel:state:has_static_data"),
        ("frame", "x.y", None, "end", "frame:x_y:end"),
        ("frame", "other", "rerun.archetypes.Points3D", "end", "frame:Points3D:other:end"),
        ("frame", "A:b", "my.A", "end", "frame:my_A:A:b:end"),
        ("__a,b\\c", None, None, "start", "a_b_c:start"),
    ],
)
def test_column_names(
    timeline: str | None, component: str | None, archetype: str | None, suffix: str, name: str
) -> None:
    descriptor = None if component is None else ComponentDescriptor(component, archetype)
    assert column_name(timeline, descriptor, suffix) == name


@pytest.mark.parametrize(
    ("entity", "name"),
    [("/arm", "/arm:c"), ("/__properties", "property:c"), ("/__properties/a/b", "property:a/b:c"), ("/", "/:c")],
)
def test_union_schema_names(entity: str, name: str) -> None:
    assert columns.column_name(entity, "c") == name


# --- what is written is found again


def test_headers_come_back(tmp_path: Path) -> None:
    chunks = [
        chunk(
            "/a", {"frame": frame(3, 4, 9), "log_time": stamp(30, 40, 90)}, x=[[1.0], None, []], y=[[1.0], [2.0], [3.0]]
        ),
        chunk("/b c", {"rel": pa.array([5, -7], pa.duration("ns"))}, x=[[1.0], [2.0]]),
        static(),
        chunk("/__properties/episode", {}, name=[[1.0]]),
        chunk("/a", {"frame": frame()}, x=[]),
        chunk("/a", {"frame": frame(2**63 - 1, -(2**63))}, x=[[1.0], [1.0]]),
    ]
    file = RrdFile(write_rrd(tmp_path / "a.rrd", chunks))
    for entry, original in zip(entries(file), chunks, strict=True):
        found, wanted = entry.header, original.header
        assert (found.chunk_id, found.entity_path, found.num_rows, found.is_static, found.timelines) == (
            (wanted.chunk_id, wanted.entity_path, wanted.num_rows, wanted.is_static, wanted.timelines)
        )
        assert [(c.descriptor, c.datatype, c.ranges) for c in found.components] == [
            (c.descriptor, c.datatype, c.ranges) for c in wanted.components
        ]


def test_a_component_of_nothing_but_nulls_is_not_in_a_header(tmp_path: Path) -> None:
    original = chunk("/a", {"frame": frame(1)}, x=[[1.0]], y=[None])
    (entry,) = entries(RrdFile(write_rrd(tmp_path / "a.rrd", [original])))
    assert [c.descriptor.component for c in entry.header.components] == ["x"]


def test_emptiness_is_known_where_the_whole_recording_agrees(tmp_path: Path) -> None:
    chunks = [chunk("/a", {"frame": frame(i)}, x=[[]], y=[[]] if i else [[1.0]]) for i in range(2)]
    for entry in entries(RrdFile(write_rrd(tmp_path / "a.rrd", chunks))):
        assert [c.is_empty for c in entry.header.components] == [True, None]


def test_offsets_point_at_messages(tmp_path: Path) -> None:
    path = write_rrd(tmp_path / "a.rrd", [scalars(), scalars(start=9), static()])
    file = RrdFile(path)
    places = [(m.offset, m.size) for m in file.messages() if m.kind == 2]
    assert [(e.offset, e.size) for e in entries(file)] == places


def test_components_that_share_a_column_name(tmp_path: Path) -> None:
    first = Chunk.build(
        "/a", {"t": frame(1)}, [(ComponentDescriptor(n), pa.array([[1.0]], F64)) for n in ("x.y", "x-y")]
    )
    second = Chunk.build("/a", {"t": frame(2)}, [(ComponentDescriptor("x-y"), pa.array([[1.0]], F64))])
    data = rrd_bytes(first, second)
    for strip in (False, True):
        if strip:
            data = with_manifest(
                data, lambda b: pa.record_batch(b.columns, pa.schema([f.remove_metadata() for f in b.schema]))
            )
        found = [[c.descriptor.component for c in e.header.components] for e in entries(save(tmp_path, data))]
        assert found == [["x-y", "x.y"], ["x-y"]]


def test_one_component_under_two_descriptors(tmp_path: Path) -> None:
    """The schema can name one of them; the header of the other chunk comes from the chunk."""
    chunks = [
        Chunk.build("/a", {"t": frame(i)}, [(ComponentDescriptor("A:x", "A", kind), pa.array([[1.0]], F64))])
        for i, kind in enumerate(("T1", "T2"))
    ]
    file = RrdFile(write_rrd(tmp_path / "a.rrd", chunks))
    assert [len(e.header.components) for e in entries(file)] == [1, 0]
    assert [c.header.components[0].descriptor.component_type for c in file.chunks(STORE)] == ["T1", "T2"]


# --- what one manifest can't tell apart


@pytest.mark.parametrize("names", [("a-b", "a_b"), ("a b", "a.b"), ("_t", "t")])
def test_timelines_that_share_a_column_name(tmp_path: Path, names: tuple[str, str]) -> None:
    with RrdWriter(tmp_path / "a.rrd") as writer:
        writer.begin_store(STORE)
        writer.append(STORE, scalars(timeline=names[0]))
        with pytest.raises(WriteError, match="share the column"):
            writer.append(STORE, scalars(timeline=names[1]))
        assert len(list((tmp_path / "a.rrd").read_bytes())) == 0


def test_a_timeline_of_two_kinds(tmp_path: Path) -> None:
    with RrdWriter(tmp_path / "a.rrd") as writer:
        writer.begin_store(STORE)
        writer.append(STORE, chunk("/a", {"t": frame(1)}, x=[[1.0]]))
        with pytest.raises(WriteError, match="'t' is a sequence in one chunk and a timestamp in another"):
            writer.append(STORE, chunk("/b", {"t": stamp(1)}, x=[[1.0]]))


def test_columns_of_two_timelines_with_one_name() -> None:
    with pytest.raises(WriteError, match="share the column 'a:b:c:start'"):
        rrd_bytes(chunk("/a", {"a": frame(1)}, b__c=[[1.0]]), chunk("/a", {"a:b": frame(1)}, c=[[1.0]]))


# --- what others write


def test_columns_in_reverse_without_metadata(tmp_path: Path) -> None:
    def change(batch: pa.RecordBatch) -> pa.RecordBatch:
        fields = [pa.field(f.name, f.type) for f in batch.schema][::-1]
        return pa.record_batch(batch.columns[::-1], pa.schema(fields))

    original = undigested(rrd_bytes(scalars(), static()))
    assert entries(save(tmp_path, with_manifest(original, change))) == entries(save(tmp_path, original))


def test_entity_paths_dropped_from_the_union_schema(tmp_path: Path) -> None:
    def change(schema: pa.Schema) -> pa.Schema:
        return pa.schema(
            [f.with_metadata({k: v for k, v in f.metadata.items() if k != b"rerun:entity_path"}) for f in schema]
        )

    original = rrd_bytes(scalars(), static(), static("/__properties"), static("/__properties/a"))
    assert entries(save(tmp_path, with_sorbet_schema(original, change))) == entries(save(tmp_path, original))


@pytest.mark.parametrize("suffixes", [(":Scalars:scalars:start", ":Scalars:scalars:end", ":num_rows"), (":num_rows",)])
def test_without_details_headers_come_from_the_chunks(tmp_path: Path, suffixes: tuple[str, ...]) -> None:
    file = save(tmp_path, with_manifest(rrd_bytes(scalars()), lambda b: drop_columns(b, *suffixes)))
    assert [e.header.components for e in entries(file)] == [()]
    (found,) = file.chunks(STORE)
    assert [c.descriptor for c in found.header.components] == [SCALARS]


def test_part_uncompressed_and_any_digest(tmp_path: Path) -> None:
    import lz4.block

    def change(footer: object) -> None:
        manifest = footer.manifests[0]  # type: ignore[attr-defined]
        manifest.sorbet_schema_sha256 = bytes(32)
        part = manifest.data
        part.payload = lz4.block.decompress(part.payload, uncompressed_size=part.uncompressed_size)
        part.compression = 1

    assert len(entries(save(tmp_path, with_footer(rrd_bytes(scalars()), change)))) == 1


def test_extra_columns_that_are_allowed(tmp_path: Path) -> None:
    data = with_manifest(rrd_bytes(scalars()), lambda b: b.append_column("chunk_key", pa.array([b"k"])))
    assert len(entries(save(tmp_path, data))) == 1


def test_chunks_the_footer_does_not_list(tmp_path: Path) -> None:
    chunks = [scalars(), scalars(start=10), static()]
    file = save(tmp_path, with_manifest(rrd_bytes(*chunks), lambda b: b.take([0, 2])))
    assert len(entries(file)) == 2
    assert [content(c) for c in file.chunks(STORE)] == [content(c) for c in chunks]
    table = file.listing(STORE)
    assert table is not None
    assert [content(c) for c in file.chunks(STORE, table.entries())] == [content(c) for c in chunks]


def test_chunks_listed_twice_and_out_of_order(tmp_path: Path) -> None:
    chunks = [scalars(), scalars(start=10)]
    file = save(tmp_path, with_manifest(rrd_bytes(*chunks), lambda b: b.take([1, 0, 1])))
    assert len(entries(file)) == 3
    assert [content(c) for c in file.chunks(STORE)] == [content(c) for c in chunks]


def with_column(batch: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    i = batch.schema.get_field_index(name)
    return batch.set_column(i, pa.field(name, values.type, metadata=batch.schema.field(i).metadata), values)


def test_wrong_offsets(tmp_path: Path) -> None:
    def shift(batch: pa.RecordBatch) -> pa.RecordBatch:
        return with_column(
            batch, "chunk_byte_offset", pc.subtract(batch["chunk_byte_offset"], pa.scalar(3, pa.uint64()))
        )

    file = save(tmp_path, with_manifest(rrd_bytes(scalars(), scalars()), shift))
    assert len(entries(file)) == 2
    with pytest.raises(ReadError, match="where no chunk begins"):
        list(file.chunks(STORE))
    for found in file.chunks(STORE, entries(file)):
        with pytest.raises(ReadError) as caught:
            found.to_record_batch()
        assert caught.value.offset is not None


def test_chunks_that_lie_where_another_should(tmp_path: Path) -> None:
    def swap(batch: pa.RecordBatch) -> pa.RecordBatch:
        return with_column(batch, "chunk_id", batch["chunk_id"].take(pa.array([1, 0])))

    file = save(tmp_path, with_manifest(rrd_bytes(scalars(), scalars()), swap))
    for found in file.chunks(STORE):
        with pytest.raises(ReadError, match=r"expected chunk .* here"):
            found.to_record_batch()
    with pytest.raises(ReadError, match=r"expected chunk .* here"):
        write_rrd(tmp_path / "b.rrd", list(file.chunks(STORE)))


# --- what is refused


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda b: drop_columns(b, "chunk_id"), "'chunk_id' 0 times"),
        (lambda b: drop_columns(b, "chunk_num_rows"), "chunk_num_rows"),
        (lambda b: with_column(b, "chunk_entity_path", b["chunk_entity_path"].cast(pa.large_string())), "large_string"),
        (lambda b: drop_columns(b, "has_static_data"), "of static chunks of .* is missing"),
        (lambda b: drop_columns(b, "frame:start", "frame:end"), "'frame:start' 0 times"),
        (lambda b: with_column(b, "frame:start", b["frame:start"].cast(pa.timestamp("ns"))), "'frame' is a sequence"),
        (lambda b: drop_columns(b, "scalars:end"), "must be adjacent"),
        (lambda b: b.append_column("foo", pa.array([1, 2])), "'foo'"),
        (lambda b: b.append_column("a:foo", pa.array([1, 2])), "'a:foo'"),
        (lambda b: b.append_column("zz:start", pa.array([1, 2])), "'zz:start'"),
        (lambda b: with_column(b, "chunk_num_rows", pa.array([1, None], pa.uint64())), "1 nulls"),
        (lambda b: with_column(b, "chunk_byte_offset", pa.array([2**64 - 1, 30], pa.uint64())), "outside the messages"),
        (lambda b: with_column(b, "chunk_byte_size", pa.array([2**63, 30], pa.uint64())), "outside the messages"),
        (lambda b: with_column(b, "chunk_byte_offset", pa.array([0, 30], pa.uint64())), "outside the messages"),
        (lambda b: b.append_column("chunk_id", b["chunk_id"]), "'chunk_id' 2 times"),
    ],
)
def test_manifests_that_are_refused(tmp_path: Path, change, words: str) -> None:
    file = save(tmp_path, with_manifest(rrd_bytes(scalars(), static()), change))
    for call in (file.stores, lambda: list(file.chunks(STORE))):
        with pytest.raises(ReadError, match=words) as caught:
            call()
        assert caught.value.offset is not None
        assert caught.value.hint


def changed_part(name: str, value: object):
    return lambda footer: setattr(footer.manifests[0].data, name, value)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda f: f.manifests[0].ClearField("sorbet_schema_sha256"), ReadError, "sorbet_schema_sha256"),
        (lambda f: setattr(f.manifests[0], "sorbet_schema_sha256", b"short"), ReadError, "5 bytes instead of 32"),
        (lambda f: f.manifests[0].ClearField("data"), ReadError, "missing required field"),
        (lambda f: f.manifests[0].ClearField("store_id"), ReadError, "missing required field"),
        (lambda f: setattr(f.manifests[0].sorbet_schema, "arrow_schema", b"no"), ReadError, "Arrow schema"),
        (changed_part("encoder_version", 0), UnsupportedError, "encoder version 0"),
        (changed_part("encoder_version", 9), UnsupportedError, "encoder version 9"),
        (changed_part("compression", 7), UnsupportedError, "unknown compression 7"),
        (changed_part("uncompressed_size", 10), ReadError, "decompressed"),
        (changed_part("uncompressed_size", 2**50), ReadError, "uncompressed size"),
        (changed_part("payload", b"xx"), ReadError, "decompressed|possible"),
        (lambda f: f.manifests[0].store_id.ClearField("application_id"), ReadError, "application id"),
    ],
)
def test_footers_that_are_refused(tmp_path: Path, change, error: type[ReadError], words: str) -> None:
    with pytest.raises(error, match=words):
        save(tmp_path, with_footer(rrd_bytes(scalars()), change)).stores()


def test_the_footer_of_a_draft_is_gone_without(tmp_path: Path) -> None:
    data = bytearray(with_manifest(rrd_bytes(scalars()), lambda b: drop_columns(b, "chunk_num_rows")))
    data[4:8] = b"\x00\x1c\x00\xc1"
    file = save(tmp_path, bytes(data))
    with pytest.warns(ReadWarning, match=r"draft format of Rerun 0\.28\.0-alpha\.1\+dev"):
        assert not file.has_footer
    assert len(list(file.chunks(STORE))) == 1
