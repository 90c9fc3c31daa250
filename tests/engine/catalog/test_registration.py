"""Registration of RRDs where they lie: what becomes of each file, what is refused, and what a dataset then tells."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chunk_making import content, made
from chunkmill.engine import Chunk, LazyChunkStream
from chunkmill.engine.catalog import (
    AlreadyExistsError,
    CatalogClient,
    DatasetEntry,
    NotFoundError,
    SegmentRegistrationResult,
    registration,
)
from chunkmill.engine.catalog.layers import look_together
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.errors import ReadError, RegistrationError, UsageError
from chunkmill.engine.rrd import MESSAGE_HEADER_SIZE, STREAM_FOOTER_SIZE, StoreEntry, parse_stream_footer
from chunkmill.engine.storage import VersionFiles
from chunkmill.engine.store import RecordingStore
from chunkmill.engine.stream import write_stores

Write = Callable[..., Path]


@pytest.fixture
def dataset(tmp_path: Path) -> DatasetEntry:
    return CatalogClient(tmp_path / "lake").create_dataset("drives")


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes an RRD of some chunks; by default one of three rows."""

    def written(name: str, recording_id: str = "seg", chunks: Iterable[Chunk] | None = None, **options: Any) -> Path:
        path = tmp_path / "files" / f"{name}.rrd"
        path.parent.mkdir(exist_ok=True)
        stream = LazyChunkStream.from_iter(list(chunks or [made(range(3), **options)]))
        stream.write_rrd(path, application_id="tests", recording_id=recording_id)
        return path

    return written


def properties(**values: Any) -> Chunk:
    """A static chunk of properties."""
    columns = [(ComponentDescriptor(name), pa.array([[value]])) for name, value in values.items()]
    return Chunk.build("/__properties", {}, columns)


def rows(frame: Any) -> list[dict[str, Any]]:
    return frame.to_arrow_table().to_pylist()


# --- what becomes of files


def test_a_file_becomes_a_segment_where_it_lies(dataset: DatasetEntry, write: Write) -> None:
    path = write("one", "seg")
    handle = dataset.register(path.as_uri())
    assert handle.wait().segment_ids == ["seg"] == handle.wait().segment_ids
    assert list(handle.iter_results()) == [SegmentRegistrationResult(path.as_uri(), "seg", None)]
    assert dataset.segment_ids() == ["seg"]
    store = dataset.segment_store("seg")
    assert content(store) == content(LazyChunkStream.from_iter(store)) and len(store) == 1
    assert not list(Path(dataset.__fspath__()).glob("shards/*"))
    recording = dataset.download_segment("seg")
    assert (recording.application_id(), recording.recording_id()) == ("tests", "seg")


def test_results_are_in_the_order_of_the_request(dataset: DatasetEntry, write: Write) -> None:
    paths = [write(name, name) for name in ("c", "a", "b")]
    handle = dataset.register([str(path) for path in paths], layer_name=["x", "", "y"])
    assert handle.wait(60).segment_ids == ["c", "a", "b"] == dataset.segment_ids()
    assert [row["rerun_layer_names"] for row in rows(dataset.segment_table())] == [["x"], ["base"], ["y"]]


def test_layers_of_a_segment_are_put_together(dataset: DatasetEntry, write: Write) -> None:
    base, more = write("base", components="c"), write("more", components="d")
    assert dataset.register([str(base), str(more)], layer_name=["base", "more"]).wait().segment_ids == ["seg", "seg"]
    assert dataset.segment_ids() == ["seg"]
    (row,) = rows(dataset.segment_table())
    assert row["rerun_layer_names"] == ["base", "more"] and row["rerun_num_chunks"] == 2
    assert row["rerun_storage_urls"] == [base.as_uri(), more.as_uri()]
    assert {c.component for c in dataset.schema().component_columns()} == {"c", "d"}
    assert len(dataset.segment_store("seg")) == 2
    dataset.unregister(layers_to_drop=["base"])
    assert {c.component for c in dataset.schema().component_columns()} == {"d"}


def test_all_rrds_below_a_folder_are_registered_by_their_paths(dataset: DatasetEntry, write: Write) -> None:
    folder = write("b", "b").parent
    write("a", "a").rename(folder / "deep.txt")
    (folder / "below").mkdir()
    write("c", "c").rename(folder / "below" / "c.rrd")
    assert dataset.register_prefix(folder.as_uri(), layer_name="l").wait().segment_ids == ["b", "c"]


@pytest.mark.parametrize(
    ("on_duplicate", "rows_left", "error"), [("replace", 2, None), ("skip", 1, None), ("error", 1, "already exists")]
)
def test_a_layer_that_is_there(
    dataset: DatasetEntry, write: Write, on_duplicate: str, rows_left: int, error: str | None
) -> None:
    dataset.register(str(write("one", chunks=[made(range(3))]))).wait()
    path = str(write("two", chunks=[made([1]), made([2])]))
    if error:
        with pytest.raises(AlreadyExistsError, match=error):
            dataset.register(path, on_duplicate=on_duplicate)
    else:
        (result,) = dataset.register(path, on_duplicate=on_duplicate).iter_results()
        assert (result.segment_id, result.replaced) == ("seg", on_duplicate == "replace")
    assert len(dataset.segment_store("seg")) == rows_left


def test_replacing_a_layer_may_change_its_types(dataset: DatasetEntry, write: Write) -> None:
    dataset.register(str(write("one"))).wait()
    integers = made(range(3), datatype=pa.list_(pa.int64()), value=(1,))
    dataset.register(str(write("two", chunks=[integers]))).wait()
    (column,) = dataset.schema().component_columns()
    assert column.datatype == pa.list_(pa.int64())


def test_each_file_succeeds_or_fails_by_itself(dataset: DatasetEntry, write: Write, tmp_path: Path) -> None:
    good = write("good", "good")
    integers = made(range(3), datatype=pa.list_(pa.int64()), value=(1,))
    other = write("other", "other", [integers])
    junk = tmp_path / "junk.rrd"
    junk.write_bytes(b"no recording")
    handle = dataset.register([str(junk), str(good), str(other)])
    with pytest.raises(ValueError, match="Registration failed") as raised:
        handle.wait()
    text = str(raised.value)
    assert str(junk) in text and "schema incompatibility on segment 'other', layer 'base'" in text
    assert "from data_type = Int64 does not equal Float64" in text
    found = {result.uri: result for result in handle.iter_results()}
    assert found[str(good)].is_success and found[str(junk)].is_error and found[str(other)].segment_id is None
    assert dataset.segment_ids() == ["good"]


def test_of_a_file_that_is_refused_no_type_stays(dataset: DatasetEntry, write: Write, tmp_path: Path) -> None:
    """Its first recording has a type that nobody else has, its second conflicts; a later file has that column."""
    dataset.register(str(write("one", "one"))).wait()
    integers = pa.list_(pa.int64())
    both = tmp_path / "both.rrd"
    streams = [
        (StoreEntry("recording", "tests", name), LazyChunkStream.from_iter([made(range(3), **options)]))
        for name, options in (
            ("x", {"components": "d", "datatype": integers, "value": (1,)}),
            ("y", {"datatype": integers, "value": (1,)}),
        )
    ]
    write_stores(both, streams, executor="inline")
    later = write("later", "later", components="d")
    results = {r.uri: r for r in dataset.register([str(both), str(later)]).iter_results(60)}
    assert "segment 'y'" in (results[str(both)].error or "") and results[str(later)].is_success
    assert dataset.segment_ids() == ["one", "later"]


def test_of_two_incompatible_ones_at_once_exactly_one_fails(
    dataset: DatasetEntry, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have found on one version that they fit, before either publishes the next one."""
    usual, both, waited = VersionFiles.commit, threading.Barrier(2), threading.local()

    def together(files: VersionFiles, number: int, data: dict[str, Any]) -> bool:
        if not getattr(waited, "once", False):
            waited.once = True
            both.wait(20)
        return usual(files, number, data)

    monkeypatch.setattr(VersionFiles, "commit", together)
    floats = write("floats", "floats")
    integers = write("integers", "integers", [made(range(3), datatype=pa.list_(pa.int64()), value=(1,))])
    handles = [dataset.register(str(path)) for path in (floats, integers)]
    results = [result for handle in handles for result in handle.iter_results()]
    (failed,) = [result for result in results if result.is_error]
    assert "schema incompatibility on segment" in str(failed.error)
    assert dataset.segment_ids() == [result.segment_id for result in results if result.is_success]


def test_an_index_of_another_kind_conflicts(dataset: DatasetEntry, write: Write) -> None:
    dataset.register(str(write("one", "one"))).wait()
    column = pa.array([[1.0]], pa.list_(pa.float64()))
    times = {"t": pa.array([1], pa.timestamp("ns"))}
    other = Chunk.build("/a", times, [(ComponentDescriptor("c"), column)])
    with pytest.raises(ValueError, match="schema field 't' because the from data_type = Timestamp"):
        dataset.register(str(write("two", "two", [other]))).wait()


def test_a_file_without_a_footer_is_read_whole_with_a_warning(dataset: DatasetEntry, write: Write) -> None:
    path = write("old")
    whole = path.read_bytes()
    footer = parse_stream_footer(whole[-STREAM_FOOTER_SIZE:])
    assert footer is not None
    path.write_bytes(whole[: footer.start - MESSAGE_HEADER_SIZE])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert dataset.register(str(path)).wait().segment_ids == ["seg"]
    assert any("has no footer, so all of its" in str(warning.message) for warning in caught)
    assert [chunk.num_rows for chunk in dataset.segment_store("seg")] == [3]
    assert dataset.schema().column_names() == ["t", "/a:c"]


def test_a_registration_can_be_cancelled(dataset: DatasetEntry, write: Write) -> None:
    handle = dataset.register(str(write("one")))
    handle.cancel()
    results = list(handle.iter_results(60))
    assert [result.is_success for result in results] == [bool(dataset.segment_ids())]


@pytest.mark.parametrize("wait", ["wait", "results", "iter_results"])
def test_who_waits_waits_until_all_is_put_away(
    dataset: DatasetEntry, write: Write, monkeypatch: pytest.MonkeyPatch, wait: str
) -> None:
    path, put_away, beside = str(write("one")), threading.Event(), registration.Staging.beside

    @contextlib.contextmanager
    def slow(folder: Path) -> Iterator[Any]:
        with beside(folder) as staging:
            yield staging
            time.sleep(0.2)
        put_away.set()

    monkeypatch.setattr(registration.Staging, "beside", slow)
    told = getattr(dataset.register(path, copy=True, executor="inline"), wait)(60)
    assert list(told) if wait == "iter_results" else told
    assert put_away.is_set()


# --- what is refused


def test_calls_that_are_refused(dataset: DatasetEntry, write: Write, tmp_path: Path) -> None:
    path = write("one")
    empty = tmp_path / "empty"
    empty.mkdir()
    refused: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: dataset.register([]), ValueError, "no data sources to register"),
        (lambda: dataset.register("one.rrd"), ValueError, "relative URL without a base"),
        (lambda: dataset.register("file:///nope/x.rrd"), NotFoundError, 'file does not exists: "/nope/x.rrd"'),
        (lambda: dataset.register("file://rel/x.rrd"), NotFoundError, "file URI should not have a host"),
        (lambda: dataset.register(str(empty)), NotFoundError, "path is not a file"),
        (lambda: dataset.register([str(path)] * 2, layer_name=["a"]), ValueError, "must be the same length"),
        (
            lambda: dataset.register([str(path)] * 2),
            ValueError,
            "duplicate segment layers in request:\n  segment id: seg",
        ),
        (lambda: dataset.register(str(path), on_duplicate="bad"), ValueError, "Expected 'error', 'skip', or 'replace'"),
        (lambda: dataset.register_prefix("/nope"), ValueError, 'Directory not found: "/nope"'),
        (lambda: dataset.register_prefix(str(empty)), ValueError, "no rrd files found in"),
        (lambda: dataset.register_prefix(str(path)), ValueError, "expected prefix / directory but got an object"),
        (dataset.unregister, ValueError, "must specify at least 1 segment ID or layer for removal"),
        (lambda: dataset.segment_store("nope"), NotFoundError, "Segment 'nope' not found in dataset"),
        (lambda: dataset.register_blueprint(str(path)), ValueError, "holds no blueprint"),
    ]
    for call, error, text in refused:
        with pytest.raises(error) as raised:
            call()
        assert text in str(raised.value)
    assert dataset.segment_ids() == []


def test_a_replaced_file_is_an_error_when_it_is_read(dataset: DatasetEntry, write: Write) -> None:
    path = write("one")
    dataset.register(str(path)).wait()
    os.utime(path, ns=(1, 1))
    with pytest.raises(ReadError, match=r"one\.rrd"):
        content(dataset.segment_store("seg"))


def test_verified_chunks_are_compared_when_they_are_read(dataset: DatasetEntry, write: Write) -> None:
    path = write("one")
    status = path.stat()
    dataset.register(str(path), verify=True).wait()
    data = bytearray(path.read_bytes())
    chunk = next(iter(dataset.segment_store("seg")))
    assert chunk.payload is not None
    data[chunk.payload.offset + chunk.payload.size - 9] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(ReadError, match="digest"):
        content(dataset.segment_store("seg"))


# --- tables


def test_properties_and_ranges_are_columns(dataset: DatasetEntry, write: Write) -> None:
    first = write("one", "one", [made([3, 5]), properties(task="pick", index=1)])
    more = write("more", "one", [made([9], components="d"), properties(task="place")])
    other = write("two", "two", [made([1, 2], timelines=("t", "u"))])
    dataset.register([str(first), str(other), str(more)], layer_name=["base", "base", "more"]).wait()
    table = dataset.segment_table().to_arrow_table()
    assert table.column_names[6:] == ["property:index", "property:task", "t:end", "t:start", "u:end", "u:start"]
    one, two = table.to_pylist()
    assert (one["property:task"], one["property:index"], one["t:start"], one["t:end"], one["u:end"]) == (
        ["place"], [1], 3, 9, None
    )  # fmt: skip
    assert (two["property:task"], two["u:start"], two["u:end"]) == (None, 1, 2)
    assert table.schema.field("t:end").metadata[b"rerun:index_marker"] == b"end"
    manifest = dataset.manifest().to_arrow_table()
    assert [row["property:task"] for row in manifest.to_pylist()] == [["pick"], ["place"], None]
    assert "rerun_registration_status" in dataset.manifest(include_diagnostic_data=True).schema().names
    ranges = dataset.get_index_ranges().to_arrow_table()
    assert ranges.column_names == ["rerun_segment_id", "t:end", "t:start", "u:end", "u:start"]


def test_tables_of_an_empty_dataset(dataset: DatasetEntry) -> None:
    names = ["rerun_segment_id", "rerun_layer_names", "rerun_storage_urls", "rerun_last_updated_at"]
    assert dataset.segment_table().schema().names == [*names, "rerun_num_chunks", "rerun_size_bytes"]
    assert rows(dataset.manifest()) == rows(dataset.get_index_ranges()) == []
    assert dataset.schema().column_names() == []


def test_a_segment_table_takes_columns_of_another(dataset: DatasetEntry, write: Write, tmp_path: Path) -> None:
    from datafusion import SessionContext

    dataset.register([str(write("one", "one")), str(write("two", "two"))]).wait()
    meta = SessionContext().from_pydict({"rerun_segment_id": ["two"], "label": ["good"]})
    found = {row["rerun_segment_id"]: row["label"] for row in rows(dataset.segment_table(join_meta=meta))}
    assert found == {"one": None, "two": "good"}
    with pytest.raises(ValueError, match="Dataset segment table must contain join_key column 'x'"):
        dataset.segment_table(join_meta=meta, join_key="x")
    with pytest.raises(ValueError, match="join_meta must contain join_key column 'rerun_num_chunks'"):
        dataset.segment_table(join_meta=meta, join_key="rerun_num_chunks")


def test_what_is_registered_is_there_for_others(dataset: DatasetEntry, write: Write, tmp_path: Path) -> None:
    dataset.register(str(write("one"))).wait()
    again = CatalogClient(tmp_path / "lake").get_dataset("drives")
    assert again.segment_ids() == ["seg"] and again.schema() == dataset.schema()
    with pytest.raises(AlreadyExistsError):
        CatalogClient(tmp_path / "lake").create_dataset("drives")


def test_a_dataset_that_is_deleted_meanwhile_takes_nothing(
    dataset: DatasetEntry, write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def looked(*args: Any) -> Any:
        dataset.delete()
        return look_together(*args)

    monkeypatch.setattr(registration, "look_together", looked)
    handle = dataset.register(write("a").as_uri())
    with pytest.raises(RegistrationError, match=f"Entry id '{dataset.id}' not found"):
        handle.wait()
    place = tmp_path / "lake" / "datasets" / str(dataset.id)
    assert not list((place / "versions").iterdir())


def test_a_catalog_is_no_store(dataset: DatasetEntry, tmp_path: Path) -> None:
    """Nothing is collected into its folder, and opening it as a store tells what to do."""
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=r"is a catalog.*datasets"):
        LazyChunkStream.from_iter([made(range(3))]).collect(into=tmp_path / "lake", executor="inline")
    with pytest.raises(UsageError, match=r"is a catalog.*datasets"):
        RecordingStore.open(tmp_path / "lake")
    assert sorted(tmp_path.rglob("*")) == before
    assert dataset.segment_ids() == []
