"""Versions of datasets: at, list_versions, tag, untag, restore, diff, and what maintenance leaves of them."""

from __future__ import annotations

import getpass
import json
import os
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from chunk_making import made
from chunkmill.engine import LazyChunkStream, RecordingStore
from chunkmill.engine.catalog import AlreadyExistsError, CatalogClient, DatasetEntry, NotFoundError
from chunkmill.engine.chunk import Chunk, ComponentDescriptor
from chunkmill.engine.errors import ReadError, SourceMissingError, UnsupportedCallError, UsageError
from chunkmill.engine.recordings import RecordingsFolder, StoreWriter
from chunkmill.engine.storage import VersionFiles
from chunkmill.engine.tables import connect


def recording(folder: Path, name: str, rows: Iterable[int] = range(3), entity: str = "/imu") -> str:
    """An RRD of one recording with some rows of an entity."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.rrd"
    LazyChunkStream.from_iter([made(rows, entity=entity)]).write_rrd(path, application_id="tests", recording_id=name)
    return str(path)


@pytest.fixture
def dataset(tmp_path: Path) -> DatasetEntry:
    """A dataset of three versions: one segment, two, and the first again alone with another content."""
    dataset = CatalogClient(tmp_path / "lake").create_dataset("drives")
    dataset.register(recording(tmp_path / "1", "one"), copy=True).wait()
    dataset.register(recording(tmp_path / "2", "two", range(5), "/gps"), copy=True).wait()
    dataset.unregister(segments_to_drop="two")
    dataset.register(recording(tmp_path / "3", "one", range(7)), copy=True).wait()
    return dataset


def seen(dataset: Any) -> dict[str, int]:
    """The rows of each segment."""
    rows = dataset.reader("t", executor="inline").to_arrow_table()["rerun_segment_id"].to_pylist()
    return {segment: rows.count(segment) for segment in dataset.segment_ids()}


WANTED = [{"one": 3}, {"one": 3, "two": 5}, {"one": 3}, {"one": 7}]


def cleaned(dataset: DatasetEntry) -> None:
    """Remove every version that nothing keeps."""
    dataset.do_maintenance(cleanup_before=timedelta(), unsafe_allow_recent_cleanup=True)


def test_each_version_is_read_as_it_was(dataset: DatasetEntry) -> None:
    assert [seen(dataset.at(number)) for number in (1, 2, 3, 4)] == WANTED
    then = dataset.at(2)
    assert then.version == 2 and dataset.version is None
    assert then.schema().entity_paths() == ["/gps", "/imu"] and dataset.schema().entity_paths() == ["/imu"]
    assert then.filter_segments("two").filter_contents("/gps").reader("t", executor="inline").count() == 5
    assert then.get_index_ranges().to_arrow_table().num_rows == 2
    assert then.segment_table().to_arrow_table()["rerun_segment_id"].to_pylist() == ["one", "two"]
    assert then.manifest().to_arrow_table().num_rows == 2 and then.info().num_segments == 2
    assert len(list(then.segment_store("two"))) == 1 and then.layer_names("two") == {"base"}
    view = dataset.filter_segments("one").at(2)
    assert view.segment_ids() == ["one"] and view.dataset.version == 2 and dataset.at().version == 4
    assert then.at(4).segment_ids() == ["one"] and "version=2" in repr(then)


def test_versions_are_listed_with_what_made_them(dataset: DatasetEntry) -> None:
    dataset.tag("first", 1)
    rows = dataset.list_versions().to_pylist()
    assert [row["operation"] for row in rows] == ["register", "register", "unregister", "register", "tag"]
    assert [(row["segments"], row["layers"], row["rows"]) for row in rows[:4]] == [
        (1, 1, 3),
        (2, 2, 8),
        (1, 1, 3),
        (1, 1, 7),
    ]
    assert [row["tags"] for row in rows] == [["first"], [], [], [], []]
    assert {row["author"] for row in rows} == {getpass.getuser()}
    assert [row["made_at"] for row in rows] == sorted(row["made_at"] for row in rows)


def test_a_time_means_the_version_that_was_the_newest_then(dataset: DatasetEntry) -> None:
    times = dataset.list_versions()["made_at"].to_pylist()
    for number, made_at in enumerate(times, 1):
        same = np.datetime64(made_at.replace(tzinfo=None), "us")
        for point in (made_at, made_at.replace(tzinfo=None), same, made_at.isoformat()):
            assert dataset.at(point).version == number
    assert dataset.at(times[1] - timedelta(microseconds=1)).version == 1
    assert dataset.at(datetime.now(UTC)).version == 4
    with pytest.raises(NotFoundError, match="dataset 'drives' was empty at"):
        dataset.at(times[0] - timedelta(microseconds=1))
    with pytest.raises(UsageError, match="is in the future"):
        dataset.at(datetime.now(UTC) + timedelta(hours=1))


def test_a_tag_keeps_its_version_from_every_vacuum_until_it_goes(dataset: DatasetEntry) -> None:
    assert dataset.tag("v1.0", 2) == 2 and dataset.tag("now") == 5
    assert dataset.tags() == {"now": 5, "v1.0": 2}
    pinned = dataset.at("v1.0")
    cleaned(dataset)
    cleaned(dataset)
    assert seen(pinned) == seen(dataset.at("v1.0")) == seen(dataset.at(2)) == WANTED[1]
    assert seen(dataset.at("now")) == seen(dataset) == WANTED[3]
    assert [row["version"] for row in dataset.list_versions().to_pylist()][:3] == [2, 4, 5]
    with pytest.raises(NotFoundError, match=r"dataset 'drives' has no version 3: it was removed.*There are: 2, 4, 5"):
        dataset.at(3)
    with pytest.raises(NotFoundError, match=r"the version of dataset 'drives' at .* was removed"):
        dataset.at(dataset.list_versions()["made_at"][1].as_py() - timedelta(microseconds=1))
    assert dataset.at(dataset.list_versions()["made_at"][0].as_py()).version == 2
    dataset.untag("v1.0")
    cleaned(dataset)
    with pytest.raises(SourceMissingError, match=r"a vacuum has removed version 2.*To keep a version, tag it"):
        dataset.at(5).at(5) and seen(pinned)
    with pytest.raises(NotFoundError, match=r"has no tag 'v1.0'.*There are: now"):
        dataset.at("v1.0")
    with pytest.raises(NotFoundError, match=r"there is no tag 'v1.0'"):
        dataset.untag("v1.0")


def test_a_row_frame_of_a_removed_version_says_so(dataset: DatasetEntry) -> None:
    frame = dataset.at(2).reader("t", executor="inline")
    cleaned(dataset)
    with pytest.raises(Exception, match="a vacuum removed this file"):
        frame.to_arrow_table()


def test_a_damaged_file_of_a_tagged_version_is_no_removal(dataset: DatasetEntry) -> None:
    dataset.tag("kept", 2)
    pinned = dataset.at("kept")
    names = RecordingsFolder(os.fspath(dataset)).named(pinned.store_reader().folder.version().tables)
    for shard in names[1]:
        Path(os.fspath(dataset), "shards", shard).unlink()
    with pytest.raises(ReadError) as caught:
        next(iter(pinned.segment_store("two"))).to_record_batch()
    assert "vacuum" not in str(caught.value)


def test_a_tag_moves_only_when_it_is_told_to(dataset: DatasetEntry) -> None:
    dataset.tag("release", 1)
    assert dataset.tag("release", 1) == 1 and dataset.list_versions().num_rows == 5
    with pytest.raises(AlreadyExistsError, match=r"tag 'release' already names version 1.*move=True"):
        dataset.tag("release", 2)
    assert dataset.tag("release", 2, move=True) == 2 and dataset.tags() == {"release": 2}
    assert dataset.tag("same", "release") == 2


@pytest.mark.parametrize("name", ["", "5", "a/b", "a b", "a:b", ".a", "a.", "a..b", "a.lock", "é", "x" * 181, "a'b", 5])
def test_a_name_that_no_tag_can_have_is_refused(dataset: DatasetEntry, name: Any) -> None:
    with pytest.raises(UsageError, match="is not a valid tag name"):
        dataset.tag(name)


@pytest.mark.parametrize(
    ("point", "error", "said"),
    [
        (0, UsageError, "numbered from 1, got 0"),
        (-1, UsageError, "numbered from 1"),
        (5, NotFoundError, "no version 5: it does not exist yet. There are: 1 to 4"),
        (True, UsageError, "True is not a version"),
        (1.5, UsageError, "1.5 is not a version"),
        ("5", UsageError, "A number alone is a version"),
        ("2026-13-01T00:00:00Z", UsageError, "'2026-13-01T00:00:00Z' is not a version"),
        ("2024-01-01", NotFoundError, "has no tag '2024-01-01'. There are: none. A time needs hours"),
        (np.datetime64("NaT"), UsageError, "is not a version"),
    ],
)
def test_what_means_no_version_is_refused(dataset: DatasetEntry, point: Any, error: type, said: str) -> None:
    with pytest.raises(error, match=re.escape(said)):
        dataset.at(point)


def test_an_empty_dataset_has_no_versions(tmp_path: Path) -> None:
    dataset = CatalogClient(tmp_path / "lake").create_dataset("drives")
    assert dataset.list_versions().num_rows == 0 and dataset.tags() == {}
    calls: list[Callable[[], Any]] = [
        lambda: dataset.at(1),
        dataset.at,
        lambda: dataset.at(datetime.now(UTC)),
        lambda: dataset.tag("a"),
        lambda: dataset.restore(1),
    ]
    for call in calls:
        with pytest.raises(NotFoundError, match="dataset 'drives' has no versions"):
            call()


def test_restore_is_a_commit_on_top(dataset: DatasetEntry) -> None:
    assert dataset.restore(2) == 5
    assert seen(dataset) == WANTED[1] and [seen(dataset.at(n)) for n in (1, 2, 3, 4)] == WANTED
    row = dataset.list_versions().to_pylist()[-1]
    assert (row["operation"], row["restored"], row["segments"], row["layers"], row["rows"]) == ("restore", 2, 2, 2, 8)
    assert dataset.restore(5) == 5 and dataset.restore(2) == 5
    assert dataset.tag("a") == 5 and dataset.list_versions().to_pylist()[-1]["restored"] is None
    cleaned(dataset)
    assert seen(dataset) == WANTED[1]
    dataset.register(recording(Path(os.fspath(dataset)).parent / "x", "three"), copy=True).wait()
    assert seen(dataset) == {**WANTED[1], "three": 3}


def test_diff_names_what_is_not_the_same(dataset: DatasetEntry) -> None:
    def changes(*points: Any) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in dataset.diff(*points).to_pylist()]

    first, added, again = (dataset.at(n).layers().rows["bytes"].to_pylist() for n in (1, 2, 4))
    assert changes(1, 2) == [("added", "two", "base", None, 5, None, added[1])]
    assert changes(2, 3) == [("removed", "two", "base", 5, None, added[1], None)]
    assert changes(1, 4) == changes(1) == [("changed", "one", "base", 3, 7, first[0], again[0])]
    assert changes(1, 3) == [] and dataset.at(3).diff(1).num_rows == 0
    dataset.do_maintenance(compact_fragments=True)
    assert changes(4) == []
    dataset.restore(1)
    assert changes(1) == [] and changes(4)[0][0] == "changed"


READS: Final = """
    arrow_schema asset_dataset assets assets_for_segment at blueprint_dataset blueprints catalog check_changeable
    created_at dataset default_blueprint default_blueprint_partition_id default_blueprint_segment_id
    default_segment_table_blueprint diff download_partition download_segment exported filter_contents
    filter_segments get_index_ranges id info segment_rows kind layer layer_names layers list_indexes list_search_indexes
    list_versions manifest manifest_url name partition_ids partition_url queried reader rows_table schema search_fts
    search_vector segment segment_ids segment_store segment_table segment_url segments_with store_reader tags
    to_spark updated_at version write_lerobot find label labels sample
"""
WRITES: dict[str, Any] = {
    "add_segments_to_asset": ("a", ["one"]),
    "create_fts_index": {"column": "/imu:c", "time_index": "t"},
    "create_fts_search_index": {"column": "/imu:c", "time_index": "t"},
    "create_vector_index": {"column": "/imu:c", "time_index": "t"},
    "create_vector_search_index": {"column": "/imu:c", "time_index": "t"},
    "delete": (),
    "delete_indexes": ("/imu:c",),
    "delete_search_indexes": ("/imu:c",),
    "delete_segment_properties": ("one",),
    "do_maintenance": (True, True, True),
    "forget": ("one",),
    "forget_in_assets": ("one",),
    "make_asset_dataset": (),
    "register": ("/nothing.rrd",),
    "register_asset": ("/nothing.rrd",),
    "register_blueprint": ("/nothing.rbl",),
    "register_prefix": ("/",),
    "remove_segments_from_asset": ("a", ["one"]),
    "restore": (1,),
    "set_default_blueprint": (None,),
    "set_default_blueprint_partition_id": (None,),
    "set_default_blueprint_segment_id": (None,),
    "set_default_segment_table_blueprint": (None,),
    "set_hidden": (),
    "set_name": ("other",),
    "tag": ("a",),
    "unregister": (),
    "unregister_asset": ("a",),
    "untag": ("a",),
    "update": {"name": "other"},
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_public_method_either_reads_or_is_refused(dataset: DatasetEntry) -> None:
    public = {name for name in dir(DatasetEntry) if not name.startswith("_")}
    assert public == {*READS.split(), *WRITES}, "say of a new method whether it changes anything"
    pinned = dataset.at(2)
    before = sorted(str(path) for path in Path(os.fspath(dataset)).parent.parent.rglob("*"))
    for name, arguments in WRITES.items():
        call = getattr(pinned, name)
        with pytest.raises(UsageError, match="this is version 2 of 'drives', which is read-only"):
            call(**arguments) if isinstance(arguments, dict) else call(*arguments)
    with pytest.raises(UsageError, match="this is version 2"):
        RecordingStore.open(pinned)
    with pytest.raises(UsageError, match="this is version 2"):
        pinned.segment("two").delete_layer("base")
    with pytest.raises(UsageError, match="this is version 2 of the recordings"):
        StoreWriter(pinned.store_reader().folder)
    with pytest.raises(UnsupportedCallError, match="cannot name a version"):
        pinned.segment_url("two")
    assert sorted(str(path) for path in Path(os.fspath(dataset)).parent.parent.rglob("*")) == before


def test_files_of_an_earlier_format_are_read_and_say_nothing_of_who_made_them(dataset: DatasetEntry) -> None:
    folder = Path(os.fspath(dataset), "versions")
    files = VersionFiles(RecordingsFolder(folder.parent).versions_folder, "a store", "")
    for number in (1, 2):
        data = json.loads((folder / f"{number:08}.json").read_text())
        assert data["format"] == 5
        older = {k: v for k, v in data.items() if k not in {"author", "layers", "tags", "restored", "digest", "format"}}
        (folder / f"{number:08}.json").unlink()
        assert files.create(number, older)
    rows = dataset.list_versions().to_pylist()
    assert [(row["author"], row["layers"], row["operation"]) for row in rows[:2]] == [(None, None, "register")] * 2
    assert seen(dataset.at(1)) == WANTED[0] and dataset.tag("old", 1) == 1
    cleaned(dataset)
    assert seen(dataset.at("old")) == WANTED[0]
    assert dataset.restore("old") and dataset.list_versions().to_pylist()[-1]["layers"] is None
    with pytest.raises(ReadError, match=r"it has format 5.*supports formats up to 4"):
        files.latest()


def test_two_tag_and_restore_at_once_and_nothing_is_lost(dataset: DatasetEntry, monkeypatch: Any) -> None:
    publish, others = RecordingsFolder.publish, iter(["between", "again"])

    def after_another(folder: RecordingsFolder, version: Any) -> bool:
        name = next(others, None)
        if name is not None:
            dataset.tag(name, 1)
        return publish(folder, version)

    monkeypatch.setattr(RecordingsFolder, "publish", after_another)
    dataset.restore(2)
    assert dataset.tags() == {"between": 1, "again": 1} and seen(dataset) == WANTED[1]


def test_a_version_that_a_vacuum_takes_meanwhile_is_neither_tagged_nor_restored(
    dataset: DatasetEntry, monkeypatch: Any
) -> None:
    publish, vacuums = RecordingsFolder.publish, [True]

    def after_a_vacuum(folder: RecordingsFolder, version: Any) -> bool:
        if vacuums:
            vacuums.clear()
            cleaned(dataset)
        return publish(folder, version)

    monkeypatch.setattr(RecordingsFolder, "publish", after_a_vacuum)
    with pytest.raises(NotFoundError, match="a vacuum has removed version 2 of dataset 'drives'"):
        dataset.restore(2)
    assert seen(dataset) == WANTED[3] and dataset.tags() == {}


def test_a_search_finds_what_the_version_has(tmp_path: Path) -> None:
    """Whether the index covers it, no longer covers it, or never did."""
    dataset = CatalogClient(tmp_path / "lake").create_dataset("notes")

    def register(name: str, text: str) -> None:
        notes = Chunk.build("/notes", {"t": pa.array([1])}, [(ComponentDescriptor("text"), pa.array([[text]]))])
        path = tmp_path / f"{len(text)}.rrd"
        LazyChunkStream.from_iter([notes]).write_rrd(path, application_id="tests", recording_id=name)
        dataset.register(str(path)).wait()

    def found(dataset: DatasetEntry) -> list[tuple[str, str]]:
        rows = dataset.search_fts("rain", "/notes:text").to_arrow_table().to_pylist()
        return sorted((row["rerun_segment_id"], row["instance"]) for row in rows)

    register("one", "rain")
    dataset.create_fts_search_index(column="/notes:text", time_index="t")
    register("two", "more rain")
    register("one", "no such word")
    wanted = [[("one", "rain")], [("one", "rain"), ("two", "more rain")], [("two", "more rain")]]
    assert [found(dataset.at(number)) for number in (1, 2, 3)] == wanted
    dataset.do_maintenance(optimize_indexes=True)
    assert [found(dataset.at(number)) for number in (1, 2, 3)] == wanted
    dataset.restore(1)
    assert found(dataset) == wanted[0] and len(dataset.at(1).list_search_indexes()) == 1


def test_a_table_of_rows_follows_a_restoration(dataset: DatasetEntry, tmp_path: Path) -> None:
    tables = connect(tmp_path / "tables")

    def counts() -> dict[str, int]:
        segments = dataset.rows_table(tables, "rows", "t").to_arrow()["rerun_segment_id"].to_pylist()
        return {segment: segments.count(segment) for segment in segments}

    assert counts() == WANTED[3]
    dataset.restore(2)
    assert counts() == WANTED[1]
    then = dataset.at(4).rows_table(tables, "then", "t").to_arrow()
    assert then.num_rows == 7


def test_versions_of_blueprints_are_those_of_their_own_dataset(dataset: DatasetEntry, data: Path) -> None:
    dataset.register_blueprint(str(data / "rrd" / "px4-rerun__both.rbl"))
    hidden = dataset.blueprint_dataset()
    assert hidden is not None and len(hidden.segment_ids()) == 1
    assert hidden.list_versions()["segments"].to_pylist() == [0] and hidden.at(1).segment_ids() == hidden.segment_ids()
    assert dataset.at(1).blueprints() == dataset.blueprints() and dataset.list_versions().num_rows == 4
    hidden.unregister(segments_to_drop=hidden.segment_ids())
    assert hidden.diff(1)["change"].to_pylist() == ["removed"]
    hidden.restore(1)
    assert len(dataset.blueprints()) == 1
