"""Recordings of several layers, files in place, removal; and what entries say of their chunks, in old stores, too."""

from __future__ import annotations

import json
import os
import tarfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, Schema, TimeColumn
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.errors import ReadError, SourceMissingError
from chunkmill.engine.recordings import (
    Commit,
    IndexRange,
    RecordingEntry,
    RecordingsFolder,
    SchemaFiles,
    StoreWriter,
    summary_of,
    verify_store,
)
from chunkmill.engine.recordings.entries import SCHEMA, entries_in, parse_table, rows_of, table_of
from chunkmill.engine.recordings.summaries import properties_in
from chunkmill.engine.recordings.versions import TableRef
from chunkmill.engine.rrd import digest_of
from chunkmill.engine.store import ChunkStore, RecordingStore
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.readers.store_recording import StoreRecording
from click.testing import CliRunner
from stored_recordings import MadeRecordings, chunks_of, contents, in_place

OLD = Path(__file__).parent / "data" / "store_of_format_3.tar.xz"


@pytest.fixture
def made(tmp_path: Path) -> MadeRecordings:
    return MadeRecordings(tmp_path / "store")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A store that was written before there were layers: of ``a`` two contents, ``b``, ``c``, and a blueprint."""
    with tarfile.open(OLD) as packed:
        packed.extractall(tmp_path / "old", filter="data")
    return tmp_path / "old"


def rrd(path: Path, recording_id: str, seed: int = 5) -> Path:
    static = Chunk.from_columns("/__properties", [], [ComponentColumn("RecordingInfo:name", [["drive"]])])
    LazyChunkStream.from_iter([*chunks_of(seed), static]).write_rrd(
        path, application_id="tests", recording_id=recording_id, executor="inline"
    )
    return path


def register(made: MadeRecordings, *entries: RecordingEntry) -> None:
    made.writer.refresh()
    made.writer.publish(entries, Commit("register"))


class TestWhatACommitSays:
    def test_columns_ranges_and_properties(self, tmp_path: Path) -> None:
        chunks = [
            *chunks_of(1, chunks=3),
            Chunk.from_columns("/__properties", [], [ComponentColumn("name", [["old"]])]),
            Chunk.from_columns("/__properties", [], [ComponentColumn("name", [["new"]])]),
            Chunk.from_columns("/__properties/trip", [], [ComponentColumn("length", [[2.5]])]),
            Chunk.from_columns("/__properties", [TimeColumn("tick", sequence=[40])], [ComponentColumn("at", [[1]])]),
        ]
        LazyChunkStream.from_iter(chunks).collect(into=tmp_path / "store", executor="inline")
        (entry,) = RecordingStore.open(tmp_path / "store")
        assert entry.ranges == (IndexRange("tick", "sequence", 0, 40),)
        assert entry.schema is not None and entry.properties is not None
        found = SchemaFiles(RecordingsFolder(tmp_path / "store")).get(entry.schema)
        assert Schema.from_arrow(found) == ChunkStore.open(tmp_path / "store").schema()
        table = properties_in(entry.properties)
        assert table.to_pylist() == [{"property:name": ["new"], "property:trip:length": [2.5]}]
        assert table.schema.field(0).metadata[b"rerun:is_static"] == b"true"

    def test_recordings_with_the_same_columns_share_a_schema(self, made: MadeRecordings) -> None:
        made.commit({"id": "a"}, {"id": "b"}, {"id": "c", "chunks": 1})
        assert len(list(made.folder.schemas.names())) == 2
        assert len({entry.schema for entry in made.open()}) == 2
        assert {entry.properties for entry in made.open()} == {b""}

    def test_a_recording_whose_chunks_are_elsewhere_says_them(self, made: MadeRecordings) -> None:
        made.commit({"id": "a", "keep_chunks": False})
        (entry,) = made.open()
        assert entry.schema and entry.ranges == (IndexRange("tick", "sequence", 0, 5),)


class TestLayers:
    def test_the_chunks_of_all_of_them(self, made: MadeRecordings, tmp_path: Path) -> None:
        made.commit({"id": "drive"}, {"id": "other"})
        register(made, in_place(made.folder, rrd(tmp_path / "poses.rrd", "drive"), "poses"))
        store = made.open()
        assert [(e.recording_id, e.layer) for e in store] == [("drive", "base"), ("other", "base"), ("drive", "poses")]
        assert (store.version.recordings, len(store.recording("drive")), len(store.recording("other"))) == (2, 5, 2)
        assert len(store.recording("drive", layers=["poses"])) == len(store.recording(store.layers("drive")[1])) == 3
        assert store.entry("drive").layer == "base"
        with pytest.raises(SourceMissingError, match="layer") as caught:
            store.recording("drive", layers=["maps"])
        assert "base, poses" in str(caught.value.hint)
        reader = StoreRecording(made.home, recording="drive")
        assert [e.number for e in reader.episodes()] == ["drive", "other"]
        assert sum(1 for _ in reader.stream()) == 5

    def test_one_layer_takes_the_place_of_that_of_its_name(self, made: MadeRecordings, tmp_path: Path) -> None:
        made.commit({"id": "drive"})
        for seed in (3, 4):
            register(made, in_place(made.folder, rrd(tmp_path / f"{seed}.rrd", "drive", seed), "poses"))
        assert [Path(e.source).name for e in made.open().layers("drive")] == ["drive.rrd", "4.rrd"]

    def test_one_that_is_removed_is_gone_also_when_tables_are_read_anew(self, made: MadeRecordings) -> None:
        made.commit({"id": "drive"}, {"id": "other"})
        (first, _) = made.open()
        register(made, replace(first, layer="poses"))
        removed = replace(first, removed=True, manifest="", shards=(), chunks=0, rows=0, bytes=0)
        register(made, removed)
        assert [(e.recording_id, e.layer) for e in made.open()] == [("other", "base"), ("drive", "poses")]
        assert made.open().version.recordings == 2
        register(made, replace(removed, layer="poses"))
        assert [e.recording_id for e in made.open()] == ["other"]
        assert made.open().version.recordings == 1
        made.open().compact()
        assert [e.recording_id for e in made.open()] == ["other"]
        register(made, first)
        assert [e.recording_id for e in made.open()] == ["other", "drive"]

    def test_a_store_of_one_recording_has_its_layers(self, tmp_path: Path) -> None:
        home = tmp_path / "store"
        LazyChunkStream.from_iter(chunks_of(1)).collect(into=home, executor="inline", recording_id="drive")
        folder = RecordingsFolder(home)
        StoreWriter(folder).publish([in_place(folder, rrd(tmp_path / "x.rrd", "drive"), "poses")], Commit("register"))
        assert len(ChunkStore.open(home)) == 5
        assert ChunkStore.open(home).version.chunks == 5  # type: ignore[union-attr]

    def test_commands_tell_of_them(self, made: MadeRecordings, tmp_path: Path) -> None:
        made.commit({"id": "drive"}, {"id": "other"})
        register(made, in_place(made.folder, rrd(tmp_path / "poses.rrd", "drive"), "poses"))
        run, home = CliRunner().invoke, str(made.home)
        listed = run(commands, ["ls", home]).output
        assert "2 recordings" in listed and "poses.rrd" in listed and "layer" in listed
        rows = [json.loads(line) for line in run(commands, ["ls", home, "--json"]).output.splitlines()]
        assert [row["layer"] for row in rows] == ["base", "base", "poses"]
        assert rows[2]["properties"] == ["property:RecordingInfo:name"]
        assert rows[2]["ranges"] == [{"name": "tick", "kind": "sequence", "start": 0, "end": 5}]
        (shown,) = json.loads(run(commands, ["show", home, "drive", "--json"]).output)["recordings"]
        assert shown["chunks"] == 5
        out = tmp_path / "out.rrd"
        result = run(commands, ["export", home, "poses.rrd", "-o", str(out), "--executor", "inline"])
        assert result.exit_code == 0, result.output
        assert "drive" in run(commands, ["inspect", str(out)]).output
        assert run(commands, ["verify", home]).exit_code == 0


class TestFilesInPlace:
    def test_compaction_leaves_them_where_they_lie(self, made: MadeRecordings, tmp_path: Path) -> None:
        made.commit({"id": "a"})
        made.commit({"id": "b"})
        path = rrd(tmp_path / "drive.rrd", "drive")
        register(made, in_place(made.folder, path))
        before = contents(made.open())
        report = made.open().compact()
        assert (report.shards_after, report.manifests_after) == (1, 1)
        assert contents(made.open()) == before
        entry = made.open().entry("drive")
        assert (entry.in_place, entry.shards) == (True, ())
        made.open().vacuum()
        assert path.exists() and contents(made.open()) == before
        assert not verify_store(made.folder).faults

    def test_one_that_was_replaced_is_an_error_with_both_identities(self, made: MadeRecordings, tmp_path: Path) -> None:
        path = rrd(tmp_path / "drive.rrd", "drive")
        register(made, in_place(made.folder, path))
        status = path.stat()
        chunk = next(iter(made.open().recording("drive")))
        os.utime(path, ns=(0, 1_000_000_000))
        for read in (lambda: chunk.to_record_batch(), lambda: contents(made.open())):
            with pytest.raises(ReadError, match="was replaced since it was registered") as caught:
                read()
            assert caught.value.path == str(path)
            assert f"{status.st_size:,} bytes" in str(caught.value) and "1970-01-01T00:00:01" in str(caught.value)
        (fault,) = verify_store(made.folder).faults
        assert fault.path == str(path)
        os.utime(path, ns=(0, status.st_mtime_ns))
        assert not verify_store(made.folder).faults
        path.unlink()
        (fault,) = verify_store(made.folder).faults
        assert "file in place" in str(fault)
        with pytest.raises(SourceMissingError):
            contents(made.open())

    def test_a_file_that_was_copied_back_is_the_same(self, made: MadeRecordings, tmp_path: Path) -> None:
        path = rrd(tmp_path / "drive.rrd", "drive")
        register(made, in_place(made.folder, path))
        status, data = path.stat(), path.read_bytes()
        path.unlink()
        (tmp_path / "other").write_bytes(b"takes the inode")
        path.write_bytes(data)
        os.utime(path, ns=(0, status.st_mtime_ns))
        assert list(contents(made.open())) == ["drive"]

    def test_a_manifest_names_no_files_but_its_own(self, made: MadeRecordings, tmp_path: Path) -> None:
        """Neither does one of the store's name a place elsewhere, nor one in place a shard."""
        made.commit({"id": "a"})
        entry = in_place(made.folder, rrd(tmp_path / "drive.rrd", "drive"))
        for hostile in (replace(entry, in_place=False), replace(made.open().entry("a"), in_place=True)):
            with pytest.raises(ReadError, match="not one of its files"):
                made.folder.references(hostile)


class TestOldStores:
    def test_one_is_read_as_it_is(self, old: Path) -> None:
        store = RecordingStore.open(old)
        assert [(e.recording_id, e.layer, e.schema, e.in_place) for e in store] == [
            (name, "base", None, False) for name in "bac"
        ]
        assert {name: len(chunks) for name, chunks in contents(store).items()} == {"b": 2, "a": 2, "c": 3}
        assert len(store.versions()) == 3 and len(store.blueprints()) == 1
        assert not verify_store(RecordingsFolder(old)).faults
        summary = summary_of(RecordingsFolder(old).references(store.entry("c")))
        assert summary.ranges == (IndexRange("tick", "sequence", 0, 8),)
        assert summary.schema.names[1:] == ["tick", "/signal/0:value", "/signal/1:value"]

    def test_the_next_commit_writes_what_its_entries_did_not_say(self, old: Path) -> None:
        before = contents(RecordingStore.open(old))
        made = MadeRecordings(old)
        made.commit({"id": "d"})
        store = RecordingStore.open(old)
        assert [v.operation for v in store.versions()] == ["ingest", "ingest", "ingest", "upgrade", "ingest"]
        assert [e.recording_id for e in store] == ["b", "a", "c", "d"]
        assert all(e.schema and e.ranges and e.properties == b"" for e in [*store, *store.blueprints()])
        assert {name: chunks for name, chunks in contents(store).items() if name != "d"} == before
        assert contents(RecordingStore.open(old, version=3)) == before
        store.compact()
        store.vacuum()
        assert not verify_store(RecordingsFolder(old)).faults
        MadeRecordings(old).commit({"id": "e"})
        assert [v.operation for v in RecordingStore.open(old).versions()][-1] == "ingest"

    def test_what_cannot_be_read_stays_as_it_is(self, old: Path) -> None:
        (blueprint,) = RecordingStore.open(old).blueprints()
        manifest = old / "manifests" / blueprint.manifest
        manifest.write_bytes(manifest.read_bytes()[:-9] + b"something")
        with pytest.warns(UserWarning, match="the columns of look"):
            MadeRecordings(old).commit({"id": "d"})
        store = RecordingStore.open(old)
        assert [e.schema is None for e in [*store, *store.blueprints()]] == [False, False, False, False, True]


class TestDamage:
    """Tables with the columns of layers: whatever is in them is what was written, or an error with the file."""

    def entries(self, made: MadeRecordings, tmp_path: Path) -> list[RecordingEntry]:
        made.commit({"id": "a"}, {"id": "b"})
        register(made, in_place(made.folder, rrd(tmp_path / "drive.rrd", "drive"), "poses"))
        return [*made.open(), replace(made.open().entry("a"), removed=True, source_etag="e")]

    def test_mutants_of_a_table(self, made: MadeRecordings, tmp_path: Path) -> None:
        data, _ = table_of(rows_of(self.entries(made, tmp_path)))
        digest = digest_of(data).hex()
        for at in range(0, len(data), 11):
            for mutant in (data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], data[:at]):
                with pytest.raises(ValueError, match="digest differs"):
                    list(parse_table(mutant, digest))

    @pytest.mark.parametrize("name", ["layer", "removed", "in_place", "source", "recording_id"])
    def test_a_null_where_none_may_be(self, made: MadeRecordings, tmp_path: Path, name: str) -> None:
        rows = pa.Table.from_batches(rows_of(self.entries(made, tmp_path)), SCHEMA)
        lacking = rows.set_column(
            rows.schema.get_field_index(name), SCHEMA.field(name), pa.nulls(len(rows), SCHEMA.field(name).type)
        )
        data, _ = table_of(lacking.to_batches())
        with pytest.raises(ValueError, match=f"no {name}"):
            list(parse_table(data, digest_of(data).hex()))

    @pytest.mark.parametrize("part", ["name", "kind", "start", "end", None])
    def test_a_range_is_whole(self, made: MadeRecordings, tmp_path: Path, part: str | None) -> None:
        rows = pa.Table.from_batches(rows_of(self.entries(made, tmp_path)), SCHEMA)
        one = {"name": "tick", "kind": "sequence", "start": 0, "end": 1}
        broken = pa.array([[None if part is None else one | {part: None}]] * len(rows), SCHEMA.field("ranges").type)
        data, _ = table_of(rows.set_column(rows.schema.get_field_index("ranges"), "ranges", broken).to_batches())
        made.folder.tables.put("hostile.arrow", data)
        with pytest.raises(ReadError, match="ranges") as caught:
            made.folder.entries([TableRef("hostile.arrow", digest_of(data).hex(), len(rows))])
        assert caught.value.path == made.folder.tables.place("hostile.arrow")

    def test_what_was_written_comes_back(self, made: MadeRecordings, tmp_path: Path) -> None:
        entries = self.entries(made, tmp_path)
        data, count = table_of(rows_of(entries))
        assert count == len(entries)
        assert list(entries_in(parse_table(data, digest_of(data).hex()))) == entries

    @pytest.mark.parametrize("schema", ["../versions/00000001", "0" * 63, "/etc/passwd", ""])
    def test_a_schema_has_no_other_name(self, made: MadeRecordings, schema: str) -> None:
        made.commit({"id": "a"})
        with pytest.raises(ReadError, match="not a digest"):
            SchemaFiles(made.folder).get(schema)
