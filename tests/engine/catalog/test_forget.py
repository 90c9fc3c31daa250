"""Forgetting a segment: nothing of it is left below the lake, wherever it was, and wherever forgetting was cut."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from chunkmill import CatalogClient, Ingest, ReadError, UsageError
from chunkmill.engine import faults
from chunkmill.engine.catalog import DatasetEntry
from chunkmill.engine.catalog.segments import SegmentProperties
from chunkmill.engine.errors import WriteError
from chunkmill.engine.recordings import StoreWriter
from chunkmill.engine.recordings.folder import parse_manifest
from chunkmill.engine.recordings.vacuum import NewFiles
from chunkmill.engine.rrd import RrdFile, RrdWriter
from chunkmill.engine.tables import connect
from planted_values import GOING, MARKS, SECRET, STAYING, lake_of, recording, traces, with_tables

POINTS = [point for point in faults.POINTS if point.startswith("forget.")]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with tables, and the files from which it came."""
    folder = tmp_path_factory.mktemp("forget")
    with_tables(lake_of(folder / "lake", folder / "scratch"), folder / "lake" / "views")
    return folder


@pytest.fixture
def lake(template: Path, tmp_path: Path) -> Path:
    """A copy of that lake."""
    shutil.copytree(template / "lake", tmp_path / "lake")
    return tmp_path / "lake"


def opened(lake: Path) -> DatasetEntry:
    return CatalogClient(lake).get_dataset("drives")


def answers(dataset: DatasetEntry) -> list[pa.Table]:
    """What queries and searches of the staying segments give."""
    staying = dataset.filter_segments(list(STAYING))
    rows = staying.reader("frame").sort("rerun_segment_id", "frame").to_arrow_table()
    found = dataset.search_fts("base", column="/base/notes:text").to_arrow_table()
    found = found.filter(pa.compute.not_equal(found["rerun_segment_id"], GOING))
    found = found.sort_by([("rerun_segment_id", "ascending"), ("frame", "ascending")])
    return [rows, found.select(sorted(set(found.column_names) - {"_score"}))]


def test_nothing_of_a_segment_is_left_below_the_lake(lake: Path, template: Path) -> None:
    before = traces(lake)
    assert {mark for marks in before.values() for mark in marks} == set(MARKS)
    kinds = {path.split("/")[2] for path in before if path.startswith("datasets/")}
    assert kinds >= {"manifests", "properties", "search", "shards", "tables"}
    assert any(path.startswith("views/louder.lance/data/") for path in before)
    dataset = opened(lake)
    expected = answers(dataset)
    report = dataset.forget(GOING)
    assert traces(lake) == {}
    assert report.is_complete and report.layers == ((GOING, "base"), (GOING, "extra"))
    assert {item.kind for item in report.removed} >= {
        "asset list", "entry table", "manifest", "property file", "schema", "search table", "shard", "table file",
        "version",
    } - {"schema"}  # fmt: skip
    assert all(not Path(item.place).exists() for item in report.removed if item.place.startswith("/"))
    assert all(not item.is_below and str(template / "scratch") in item.place for item in report.remaining)
    assert len(report.remaining) == 3
    assert dataset.segment_ids() == list(STAYING)
    assert answers(dataset) == expected
    assert CatalogClient(lake).check() == []
    tables = connect(lake / "views", executor="inline")
    assert tables.open_table("rows").count_rows() == 3 * 6
    assert sorted(tables.open_table("louder").to_arrow()["l"].to_pylist())[0] == "alice-word base 0!"
    for view in ("notes", "louder"):
        tables.open_table(view).refresh()
        assert tables.open_table(view).count_rows() == 3 * 6
    assert (
        dataset.rows_table(tables, "rows", "frame", columns=["/base/notes:text", "/base/numbers:n"]).count_rows() == 18
    )


def test_done_again_it_changes_nothing(lake: Path) -> None:
    dataset = opened(lake)
    dataset.forget([GOING])
    files = sorted(path for path in lake.rglob("*") if path.is_file() and "lease" not in path.parts)
    report = dataset.forget(GOING)
    assert (report.layers, report.removed, report.remaining, report.bytes) == ((), (), (), 0)
    assert sorted(path for path in lake.rglob("*") if path.is_file() and "lease" not in path.parts) == files
    assert "there was no data" in str(report) and report.table().num_rows == 0


@pytest.mark.parametrize("point", POINTS)
def test_where_it_is_cut_the_same_call_does_the_rest(lake: Path, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    upload = recording(lake / "uploads" / "it.rrd", GOING)
    dataset = opened(lake)
    expected = answers(dataset)
    with monkeypatch.context() as patch:
        patch.setenv(faults.PLAN, f"{point}:exception:1")
        faults._here.clear()
        with pytest.raises(RuntimeError, match=point):
            dataset.forget(GOING)
    report = opened(lake).forget(GOING)
    assert report.is_complete and traces(lake) == {} and not upload.exists()
    assert report.layers == ((GOING, "base"), (GOING, "extra"))
    assert answers(opened(lake)) == expected and CatalogClient(lake).check() == []


def test_what_was_cut_is_done_by_the_next_call_for_another_segment(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv(faults.PLAN, "forget.commit:exception:1")
        faults._here.clear()
        with pytest.raises(RuntimeError):
            opened(lake).forget(GOING)
    (fault,) = CatalogClient(lake).check()
    assert "is being forgotten" in str(fault.error) and repr(GOING) in str(fault.error)
    report = opened(lake).forget("bob")
    assert report.segments == ("bob", GOING) and traces(lake) == {} and traces(lake, (b"bob",)) == {}
    assert opened(lake).segment_ids() == ["alice", "dave"]


def test_files_below_the_lake_go_and_files_elsewhere_are_named(lake: Path, tmp_path: Path) -> None:
    client = CatalogClient(lake)
    dataset = client.get_dataset("drives")
    url = client.stage(recording(tmp_path / "up.rrd", GOING), key="project/up.rrd")
    dataset.register(url, layer_name="uploaded").wait()
    shutil.copy(recording(tmp_path / "kept.rrd", GOING), lake / "archive.rrd")
    spec = {"fps": 10, "features": {"observation.state": "/base/vectors:v"}, "timeline": "ticks"}
    outside, inside = tmp_path / "elsewhere", lake / "exports" / "set"
    for place in (outside / "set", inside):
        (place / "meta").mkdir(parents=True)
        facts = {"version": 1, "spec": str(spec), "recordings": [{"name": GOING, "digest": "1", "origin": None}]}
        (place / "meta" / "chunkmill.json").write_text(json.dumps({**facts, "episodes": []}))
        (place / "data.parquet").write_bytes(SECRET.encode())
    report = dataset.forget(GOING, exports=[outside])
    assert traces(lake) == {} and not any(path.is_file() for path in inside.rglob("*"))
    places = {item.place for item in report.removed}
    assert str(lake / "uploads/project/up.rrd") in places and str(lake / "archive.rrd") in places
    assert str(outside / "set") in {item.place for item in report.remaining}
    assert "write_lerobot" in str(report)


def test_a_file_that_other_segments_need_is_copied_before_it_goes(lake: Path, tmp_path: Path) -> None:
    from chunkmill import RrdReader

    first, second = recording(tmp_path / "1.rrd", GOING), recording(tmp_path / "2.rrd", "erin")
    both = lake / "uploads" / "both.rrd"
    both.parent.mkdir()
    _join([first, second], both)
    dataset = opened(lake)
    dataset.register(str(both), layer_name="both").wait()
    assert "erin" in dataset.segment_ids()
    report = dataset.forget(GOING)
    assert report.is_complete and not both.exists() and traces(lake) == {}
    assert len(list(dataset.download_segment("erin"))) == len(list(RrdReader(second).stream()))


def _join(files: list[Path], into: Path) -> None:
    """Write an RRD with the recordings of several."""
    with into.open("wb") as out, RrdWriter(out) as writer:
        for path in files:
            file = RrdFile(path)
            for store in file.stores():
                for chunk in file.chunks(store):
                    writer.begin_store(store)
                    writer.append(store, chunk)
        writer.finish()


def test_a_damaged_neighbour_keeps_its_file_and_the_report_says_so(lake: Path) -> None:
    dataset = opened(lake)
    entry = next(e for e in dataset.store_reader().live() if e.recording_id == "bob" and e.layer == "base")
    place = Path(dataset) / "shards" / entry.shards[0]
    folder = dataset.store_reader().folder
    chunk = parse_manifest(folder.manifest(entry), entry.manifest_digest)[0].entry
    data = bytearray(place.read_bytes())
    data[chunk.offset + chunk.size - 9] ^= 0xFF
    place.write_bytes(data)
    with pytest.warns(UserWarning, match="is unchanged"):
        report = dataset.forget(GOING)
    assert not report.is_complete
    stays = [item for item in report.remaining if item.is_below]
    assert {item.place for item in stays} == {str(place)} and "'bob'" in stays[0].reason
    assert GOING not in dataset.segment_ids()
    assert [
        item.reason for item in report.remaining if "the search index of /base/notes:text was removed" in item.reason
    ]


def test_who_reads_what_is_forgotten_gets_an_error(lake: Path) -> None:
    dataset = opened(lake)
    frame = dataset.filter_segments(GOING).reader("frame")
    chunks = dataset.download_segment(GOING)
    dataset.forget(GOING)
    with pytest.raises(Exception, match=r"removed|not found"):
        frame.to_arrow_table()
    with pytest.raises((ReadError, FileNotFoundError)):
        [chunk.data for chunk in chunks]


def test_who_registers_it_again_has_it_again(lake: Path, tmp_path: Path) -> None:
    dataset = opened(lake)
    dataset.forget(GOING)
    dataset.register(str(recording(tmp_path / "new.rrd", GOING)), copy=True).wait()
    assert GOING in dataset.segment_ids()
    assert SegmentProperties(dataset).of(GOING).row is None
    dataset.forget(GOING)
    assert GOING not in dataset.segment_ids() and traces(lake) == {}


def test_a_writer_that_is_at_work_is_named(lake: Path) -> None:
    dataset = opened(lake)
    files = NewFiles(dataset.store_reader().folder, None, 1 << 20, base=0)
    files.add_manifest(SECRET.encode())
    files.finish()
    report = dataset.forget(GOING)
    assert not report.is_complete and f"{files.run}.json" in str(report)
    files.withdraw()
    assert dataset.forget(GOING).is_complete and traces(lake) == {}


def test_a_registration_meanwhile_wins(lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, again = opened(lake), recording(tmp_path / "new.rrd", GOING, rows=20)
    rewrite, times = StoreWriter.rewrite, []

    def raced(self: StoreWriter, *args: object) -> object:
        if not times:
            times.append(1)
            dataset.register(str(again), copy=True).wait()
        return rewrite(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(StoreWriter, "rewrite", raced)
    report = dataset.forget(GOING)
    if GOING in dataset.segment_ids():
        assert report.is_complete and "registered again" in str(report)
        assert CatalogClient(lake).check() == []
        assert dataset.forget(GOING).is_complete
    assert GOING not in dataset.segment_ids() and traces(lake) == {}


def test_rows_of_a_segment_that_another_dataset_has_too_stay_in_tables_that_do_not_say_whose_they_are(
    lake: Path, tmp_path: Path
) -> None:
    client = CatalogClient(lake)
    labels = client.create_table("labels", pa.schema([("rerun_segment_id", pa.string()), ("label", pa.string())]))
    labels.append(rerun_segment_id=[GOING, "alice"], label=[SECRET, "fine"])
    other = client.create_dataset("others")
    other.register(str(recording(tmp_path / "o.rrd", GOING)), copy=True).wait()
    report = client.get_dataset("drives").forget(GOING)
    assert not report.is_complete and "labels" not in {item.kind for item in report.removed}
    assert labels.reader().count() == 2
    other.forget(GOING)
    assert labels.reader().count() == 1 and client.get_dataset("drives").forget(GOING).is_complete
    assert traces(lake) == {}


def test_a_tag_of_a_table_is_named_and_goes_by_force(lake: Path) -> None:
    lance.dataset(str(lake / "views" / "rows.lance")).tags.create("paper", 2)
    dataset = opened(lake)
    with pytest.raises(UsageError, match="'paper'"):
        dataset.forget(GOING)
    assert GOING in dataset.segment_ids()
    report = dataset.forget(GOING, force=True)
    assert report.tags == ("'paper' of table 'rows.lance'",) and traces(lake) == {}


def test_a_tag_keeps_its_version_unless_that_has_the_segment(lake: Path, tmp_path: Path) -> None:
    dataset = opened(lake)
    dataset.tag("with-it")
    dataset.unregister(segments_to_drop=[GOING])
    dataset.tag("removal")
    with pytest.raises(UsageError, match="'removal', 'with-it'"):
        dataset.forget(GOING)
    assert set(dataset.tags()) == {"with-it", "removal"} and traces(lake) != {}
    report = dataset.forget(GOING, force=True)
    assert report.tags == ("'removal'", "'with-it'") and dataset.tags() == {} and traces(lake) == {}
    dataset.register(str(recording(tmp_path / "new.rrd", GOING)), copy=True).wait()
    dataset.unregister(segments_to_drop=["bob"])
    before = dataset.forget("bob")
    assert before.is_complete
    dataset.tag("clean")
    dataset.register(str(recording(tmp_path / "e.rrd", "erin")), copy=True).wait()
    rows = dataset.at("clean").reader("frame").count()
    assert dataset.forget("erin").tags == () and dataset.tags().keys() == {"clean"}
    assert dataset.at("clean").reader("frame").count() == rows and CatalogClient(lake).check() == []


def test_two_at_once_are_one_after_the_other(lake: Path) -> None:
    from chunkmill.engine.execution import Lease

    dataset = opened(lake)
    with Lease.take(Path(dataset), "forget", name="forget"), pytest.raises(WriteError, match="forget"):
        dataset.forget(GOING)
    assert GOING in dataset.segment_ids()


def test_the_quarantine_has_no_row_of_its_files(lake: Path, tmp_path: Path) -> None:
    dataset = opened(lake)
    source = next(e.source for e in dataset.store_reader().live() if e.recording_id == GOING and e.layer == "base")
    landing = tmp_path / "landing"
    landing.mkdir()
    for name in ("broken.mcap", f"{SECRET}.mcap"):
        (landing / name).write_bytes(b"broken")
    query = Ingest(landing, into=dataset, settle=0, executor="inline", checkpoint=tmp_path / "at").start(once=True)
    assert query.await_termination(60)
    table = lance.dataset(str(Path(dataset) / "quarantine" / "table.lance"))
    table.update({"path": f"'{source}'"}, where=f"path LIKE '%{SECRET}%'")
    assert table.count_rows() == 2
    dataset.forget(GOING)
    left = lance.dataset(str(Path(dataset) / "quarantine" / "table.lance")).to_table()["path"].to_pylist()
    assert traces(lake) == {} and [Path(path).name for path in left] == ["broken.mcap"]


@pytest.mark.parametrize("ids", [[], [1], "nobody"])
def test_bad_ids_are_errors_and_unknown_ones_change_nothing(lake: Path, ids: object) -> None:
    dataset = opened(lake)
    if ids == "nobody":
        versions = dataset.store_reader().folder.files.numbers()
        report = dataset.forget("nobody")
        assert dataset.store_reader().folder.files.numbers()[: len(versions)] == versions
        assert not report.layers and not report.remaining and len(dataset.segment_ids()) == 4
        return
    with pytest.raises((UsageError, TypeError)):
        dataset.forget(ids)  # type: ignore[arg-type]


def test_a_blueprint_of_its_file_alone_goes_with_it(lake: Path, tmp_path: Path, data: Path) -> None:
    dataset = opened(lake)
    both = tmp_path / "landing" / "both.rrd"
    both.parent.mkdir()
    _join([recording(tmp_path / "1.rrd", "frank"), data / "rrd" / "px4-rerun__both.rbl"], both)
    query = Ingest(both.parent, into=dataset, settle=0, executor="inline", optimize=None, checkpoint=tmp_path / "at")
    assert query.start(once=True).await_termination(60)
    kinds = [entry.kind for entry in dataset.store_reader().live()]
    assert kinds.count("blueprint") == 1
    assert dataset.forget("frank").is_complete and traces(lake, (b"frank", b"px4")) == {}
    assert "blueprint" not in [entry.kind for entry in dataset.store_reader().live()]


def test_an_empty_dataset_forgets_too(tmp_path: Path) -> None:
    dataset = CatalogClient(tmp_path / "lake").create_dataset("empty")
    report = dataset.forget("a")
    assert report.is_complete and report.removed == () and dataset.segment_ids() == []
