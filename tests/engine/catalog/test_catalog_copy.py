"""Copies of a catalog: equal, resumed wherever they were cut, brought up to date, and never half visible."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from chunkmill import CatalogClient, UsageError
from chunkmill.engine import faults
from chunkmill.engine.errors import AlreadyExistsError, ReadError, SourceMissingError, WriteError
from chunkmill.engine.storage import copies, digest_at, files_at
from planted_values import GOING, lake_of, recording, traces

KINDS = ("/_versions/", "/versions/", "catalog/")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with a dataset of every kind of file, tags, and two tables."""
    folder = tmp_path_factory.mktemp("copy")
    dataset = lake_of(folder / "lake", folder / "scratch")
    dataset.make_asset_dataset().register(str(folder / "scratch" / "mesh.rrd"), copy=True).wait()
    dataset.tag("release")
    dataset.unregister(segments_to_drop=["bob"])
    client = CatalogClient(folder / "lake")
    labels = client.create_table("labels", pa.schema([("rerun_segment_id", pa.string()), ("label", pa.string())]))
    labels.append(rerun_segment_id=["alice", GOING], label=["fine", "bad"])
    labels.computed(executor="inline").create_fts_index("label")
    client.create_dataset("empty")
    return folder


@pytest.fixture
def lake(template: Path, tmp_path: Path) -> Path:
    shutil.copytree(template / "lake", tmp_path / "lake")
    return tmp_path / "lake"


def answers(place: object) -> list[object]:
    """What queries, searches, tags, properties and tables of a lake give."""
    client = CatalogClient(str(place))
    dataset = client.get_dataset("drives")
    rows = dataset.reader("frame").sort("rerun_segment_id", "frame").to_arrow_table()
    words = dataset.search_fts("extra base", column="/base/notes:text").to_arrow_table()
    words = words.sort_by([("rerun_segment_id", "ascending"), ("frame", "ascending")])
    vectors = dataset.search_vector([1.0, 1, 2, 3], column="/base/vectors:v", top_k=3).to_arrow_table()
    table = dataset.segment_table().drop("rerun_storage_urls").to_arrow_table()
    return [
        client.entry_names(include_hidden=True),
        rows,
        words,
        vectors["_distance"].to_pylist(),
        table.sort_by("rerun_segment_id"),
        dataset.tags(),
        dataset.at("release").reader("frame").count(),
        dataset.assets(),
        client.get_table("labels").reader().to_arrow_table(),
    ]


def digests(place: Path) -> dict[str, str]:
    """The digests of all files with content and versions, but for the record of the copy, leases and times."""
    return {
        file.path: digest_at(place, file)
        for file in files_at(place)
        if "lease/" not in file.path and file.path != "catalog/copy.json"
    }


def test_a_copy_gives_equal_answers_and_is_whole(lake: Path, tmp_path: Path) -> None:
    client = CatalogClient(lake)
    before = digests(lake)
    report = client.copy_to(tmp_path / "copy")
    assert digests(lake) == before
    assert answers(tmp_path / "copy") == answers(lake)
    assert CatalogClient(tmp_path / "copy").check() == []
    copied = digests(tmp_path / "copy")
    assert {path for path in copied if path not in before} == set()
    different = {path for path in copied if copied[path] != before[path]}
    assert all(path.startswith("catalog/versions/") for path in different)
    assert (report.copied, report.present, report.removed, report.references) == (len(copied) - 1, 0, 0, ())
    assert report.bytes == sum(
        f.size for f in files_at(tmp_path / "copy") if f.path in copied and "catalog/" not in f.path
    )
    moved = tmp_path / "moved"
    shutil.move(lake, tmp_path / "gone")
    shutil.move(tmp_path / "copy", moved)
    assert answers(moved) == answers(tmp_path / "gone")


def test_a_second_copy_copies_what_is_new_and_removes_what_is_gone(lake: Path, tmp_path: Path) -> None:
    client, copy = CatalogClient(lake), tmp_path / "copy"
    first = client.copy_to(copy)
    again = client.copy_to(copy)
    assert (again.copied, again.removed, again.present) == (0, 0, first.copied)
    dataset = client.get_dataset("drives")
    dataset.register(str(recording(tmp_path / "e.rrd", "erin")), copy=True).wait()
    client.get_table("labels").append(rerun_segment_id=["erin"], label=["new"])
    client.get_dataset("empty").delete()
    assert answers(copy) != answers(lake)
    more = client.copy_to(copy)
    assert 0 < more.copied < first.copied / 2 and more.removed > 0
    assert answers(copy) == answers(lake) and CatalogClient(copy).check() == []
    assert traces(copy)
    dataset.forget(GOING, force=True)
    dataset.tag("release")
    client.copy_to(copy)
    assert traces(copy) == {} == traces(lake) and answers(copy) == answers(lake)


POINTS = [
    *(f"copy.file:{nth}" for nth in (1, 2, 3, 5, 8, 13, 21, 30)),
    *("copy.plan:1", "copy.plan:2", "copy.version:1", "copy.version:2", "copy.version:4", "copy.version:5"),
    *("copy.draft:1", "copy.entries:1", "copy.publish:1", "copy.record:1", "copy.tidy:1", "copy.tidy:2"),
]


@pytest.mark.parametrize("point", POINTS)
def test_where_it_is_cut_the_same_call_does_the_rest(
    lake: Path, tmp_path: Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, copy = CatalogClient(lake), tmp_path / "copy"
    name, _, nth = point.partition(":")
    is_second = name == "copy.tidy" or point == "copy.plan:2"
    if is_second:
        client.copy_to(copy)
        client.get_dataset("drives").do_maintenance(compact_fragments=True)
        client.get_dataset("drives").register(str(recording(tmp_path / "e.rrd", "erin")), copy=True).wait()
    with monkeypatch.context() as patch:
        patch.setenv(faults.PLAN, f"{name}:exception:{1 if point == 'copy.plan:2' else nth}")
        faults._here.clear()
        with pytest.raises(RuntimeError, match=name):
            client.copy_to(copy)
    seen = CatalogClient(copy).entry_names() if (copy / "catalog" / "versions").exists() else []
    assert seen == (
        client.entry_names() if is_second or name in ("copy.entries", "copy.publish", "copy.record") else []
    )
    client.copy_to(copy)
    assert answers(copy) == answers(lake) and CatalogClient(copy).check() == []
    client.copy_to(tmp_path / "whole")
    assert digests(copy) == digests(tmp_path / "whole")


def test_a_torn_file_is_copied_anew(lake: Path, tmp_path: Path) -> None:
    client, copy = CatalogClient(lake), tmp_path / "copy"
    client.copy_to(copy)
    record = copy / "catalog" / "copy.json"
    record.write_text(record.read_text().replace('"is_whole": true', '"is_whole": false'))
    shard = next(path for path in copy.rglob("*.rrd"))
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    assert client.copy_to(copy).copied == 1 and answers(copy) == answers(lake)


def test_what_was_written_otherwise_than_it_was_read_is_an_error(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = copies._pieces

    def flipped(folder: object, name: str, size: int) -> object:
        for piece in pieces(folder, name, size):  # type: ignore[arg-type]
            yield bytes([piece[0] ^ 1]) + piece[1:] if "copy" in str(folder.location) else piece  # type: ignore[attr-defined]

    monkeypatch.setattr(copies, "_pieces", flipped)
    with pytest.raises(WriteError, match="its digest differs"):
        CatalogClient(lake).copy_to(tmp_path / "copy")
    assert not (tmp_path / "copy" / "catalog" / "versions").exists()


def test_other_things_at_the_destination_are_refused(lake: Path, tmp_path: Path) -> None:
    client = CatalogClient(lake)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    CatalogClient(tmp_path / "other").create_dataset("a")
    for place in (tmp_path / "full", tmp_path / "other"):
        with pytest.raises(AlreadyExistsError, match="other files"):
            client.copy_to(place)
    CatalogClient(tmp_path / "other").copy_to(tmp_path / "theirs")
    with pytest.raises(AlreadyExistsError, match="another catalog"):
        client.copy_to(tmp_path / "theirs")
    for place in (lake, lake / "in", tmp_path):
        with pytest.raises(UsageError, match="into itself"):
            client.copy_to(place)
    with pytest.raises(SourceMissingError):
        CatalogClient(tmp_path / "nothing").copy_to(tmp_path / "c")


def test_a_copy_that_others_have_changed_is_not_changed_back(lake: Path, tmp_path: Path) -> None:
    client = CatalogClient(lake)
    for number, change in enumerate(("dataset", "table", "entries")):
        copy = tmp_path / f"copy{number}"
        client.copy_to(copy)
        theirs = CatalogClient(copy)
        if change == "dataset":
            theirs.get_dataset("drives").unregister(segments_to_drop=["alice"])
        elif change == "table":
            theirs.get_table("labels").append(rerun_segment_id=["x"], label=["y"])
        else:
            theirs.create_dataset("mine")
        with pytest.raises(AlreadyExistsError, match="was changed here after it was copied"):
            client.copy_to(copy)


def test_data_elsewhere_is_named_with_a_warning(lake: Path, tmp_path: Path) -> None:
    client = CatalogClient(lake)
    path = recording(tmp_path / "placed.rrd", "frank")
    client.get_dataset("drives").register(str(path)).wait()
    client.create_dataset("adopted", url=_store(tmp_path))
    with pytest.warns(UserWarning, match="not copied"):
        report = client.copy_to(tmp_path / "copy")
    assert len(report.references) == 2 and str(path) in report.references[0] + report.references[1]
    assert answers(tmp_path / "copy") == answers(lake)
    assert CatalogClient(tmp_path / "copy").get_dataset("adopted").segment_ids() == (
        client.get_dataset("adopted").segment_ids()
    )


def _store(folder: Path) -> str:
    from chunkmill import RrdReader

    RrdReader(recording(folder / "a.rrd", "a")).stream().collect(into=folder / "store", executor="inline")
    return str(folder / "store")


def test_a_file_that_went_meanwhile_is_a_transient_error(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, dataset = CatalogClient(lake), CatalogClient(lake).get_dataset("drives")
    copy_file = copies.copy_file
    done: list[int] = []

    def raced(*args: object) -> object:
        if not done:
            done.append(1)
            dataset.untag("release")
            dataset.do_maintenance(
                compact_fragments=True, cleanup_before=timedelta(0), unsafe_allow_recent_cleanup=True
            )
        return copy_file(*args)  # type: ignore[arg-type]

    monkeypatch.setattr("chunkmill.engine.catalog.copying.copy_file", raced)
    with pytest.raises(ReadError, match="removed") as raised:
        client.copy_to(tmp_path / "copy")
    assert raised.value.transient
    client.copy_to(tmp_path / "copy")
    dataset.tag("release")
    client.copy_to(tmp_path / "copy")
    assert answers(tmp_path / "copy") == answers(lake)


def test_while_a_segment_is_being_forgotten_a_copy_warns(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = CatalogClient(lake)
    with monkeypatch.context() as patch:
        patch.setenv(faults.PLAN, "forget.commit:exception:1")
        faults._here.clear()
        with pytest.raises(RuntimeError):
            client.get_dataset("drives").forget(GOING, force=True)
    with pytest.warns(UserWarning, match="is being forgotten"):
        client.copy_to(tmp_path / "copy")
    client.get_dataset("drives").forget(GOING, force=True)
    client.copy_to(tmp_path / "copy")
    assert traces(tmp_path / "copy") == {}
