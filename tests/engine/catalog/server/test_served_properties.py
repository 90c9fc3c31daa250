"""Properties of segments that clients set: kept beside the recordings, revision by revision."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.catalog.segments import SegmentProperties
from chunkmill.engine.catalog.server import ProtocolError, Status, protocol_error
from chunkmill.engine.catalog.server.protocol import part_of, rows_in
from chunkmill.engine.errors import ChunkmillError, CommitUnknownError, ReadError, UsageError, WriteError
from chunkmill.engine.faults import LOG, PLAN
from chunkmill.engine.storage import VersionFiles, publish
from served import Caller, small_lake


@pytest.fixture
def call(tmp_path: Path) -> Caller:
    catalog = small_lake(tmp_path)
    return Caller(catalog, catalog.get_dataset("drives"))


def row(**columns: Any) -> pa.RecordBatch:
    """One row of lists."""
    return pa.record_batch({f"property:{name.replace('__', ':')}": [value] for name, value in columns.items()})


def put(call: Caller, segment: str, batch: pa.RecordBatch, **more: int) -> int:
    answer = call("SetSegmentProperties", segment_id={"id": segment}, properties=part_of(batch), **more)
    revision: int = answer.revision
    return revision


def stored(call: Caller, *segments: str) -> dict[str, tuple[list[dict[str, Any]], int]]:
    """What is told of segments, by their ids."""
    told = call("GetSegmentProperties", segment_ids=[{"id": segment} for segment in segments])
    return {
        one.segment_id.id: (rows_in(one.properties).to_pylist(), one.revision)
        for answer in told
        for one in answer.segments
    }


def refused(call: Caller, name: str, **fields: Any) -> ProtocolError:
    with pytest.raises((ProtocolError, ChunkmillError)) as caught:
        call(name, **fields)
    return protocol_error(caught.value)


def test_properties_are_set_read_and_deleted(call: Caller, tmp_path: Path) -> None:
    first = put(call, "one", row(task__name=["pick"], task__weights=[1.5, 2.5]))
    put(call, "nobody", row(task__name=["later"]))  # before there is such a segment
    second = put(call, "one", row(task__name=["place", "more"]))
    assert 0 < first < second
    again = Caller(CatalogClient(tmp_path / "lake"), call.service.catalog.get_dataset("drives"))
    told = stored(again, "one", "two", "nobody", "one")
    assert told["one"] == ([{"property:task:name": ["place", "more"]}], second)  # whole rows take the place of others
    assert list(told) == ["one", "nobody"]
    assert sorted(call.service.catalog.get_dataset("drives").segment_ids()) == ["one", "three", "two"]
    call("UnregisterFromDataset", segments_to_drop=[{"id": "one"}])
    assert stored(again, "one") == {"one": told["one"]}
    call("DeleteSegmentProperties", segments=[{"segment_id": {"id": id_}} for id_ in ("one", "two")])
    assert stored(again, "one", "nobody") == {"nobody": told["nobody"]}
    third = put(call, "one", row(task__name=["pick"]), expected_revision=0)
    assert third > second  # who knows an earlier one is told that it is gone


def test_a_revision_that_is_not_the_expected_one_changes_nothing(call: Caller) -> None:
    revision = put(call, "one", row(a__b=[1]), expected_revision=0)
    for segment, expected, found in (("one", 0, revision), ("one", revision + 1, revision), ("two", 7, 0)):
        fields = {"segment_id": {"id": segment}, "expected_revision": expected}
        told = refused(call, "SetSegmentProperties", **fields, properties=part_of(row(a__b=[2])))
        assert told.code is Status.FAILED_PRECONDITION
        assert told.text == (
            f"Properties of segment '{segment}' were modified concurrently: expected revision {expected}, found {found}"
        )
        others = {"segment_id": {"id": "one"}, "expected_revision": revision}
        assert refused(call, "DeleteSegmentProperties", segments=[others, fields]).code is Status.FAILED_PRECONDITION
    assert stored(call, "one", "two") == {"one": ([{"property:a:b": [1]}], revision)}


@pytest.mark.parametrize("rows", [0, 2])
def test_properties_are_one_row(call: Caller, rows: int) -> None:
    batch = pa.record_batch({"property:a:b": pa.array([[1]] * rows, pa.list_(pa.int64()))})
    told = refused(call, "SetSegmentProperties", segment_id={"id": "one"}, properties=part_of(batch))
    assert (told.code, told.text) == (
        Status.INVALID_ARGUMENT,
        f"CM501: segment properties must be a single row, got {rows} rows.",
    )
    assert "must name at least one segment" in refused(call, "GetSegmentProperties").text
    assert refused(call, "SetSegmentProperties", properties=part_of(row(a__b=[1]))).code is Status.INVALID_ARGUMENT


def test_of_those_who_set_at_once_each_revision_has_one(call: Caller) -> None:
    def bump(_: int) -> int:
        while True:
            (found,) = stored(call, "one").values()
            count = found[0][0]["property:a:count"][0]
            with contextlib.suppress(ProtocolError):  # of a revision that is another by now
                put(call, "one", row(a__count=[count + 1]), expected_revision=found[1])
                return count

    put(call, "one", row(a__count=[0]))
    with ThreadPoolExecutor(4) as threads:
        counts = list(threads.map(bump, range(12)))  # fewer than are kept: of one that went, nobody knows
    assert sorted(counts) == list(range(12))
    assert stored(call, "one")["one"][0] == [{"property:a:count": [12]}]


def test_old_versions_go_and_damage_is_told(tmp_path: Path) -> None:
    properties = SegmentProperties(tmp_path)
    known = properties.of("é/..")
    for number in range(30):
        known = properties.replace("é/..", known, row(a__b=[number])) or known
    (folder,) = (tmp_path / "properties").iterdir()
    assert properties.of("é/..").row == row(a__b=[29])
    assert len(list(folder.iterdir())) <= 17
    newest = max(folder.iterdir())
    newest.write_bytes(newest.read_bytes().replace(b'"row"', b'"raw"'))
    with pytest.raises(ReadError, match=newest.name):
        properties.of("é/..")
    with pytest.raises(UsageError, match="more than the"):
        properties.replace("large", properties.of("large"), row(a__b=["x" * (17 << 20)]))


@pytest.mark.parametrize("point", ["version.draft", "version.publish"])
def test_a_cut_leaves_what_was_there_or_what_comes(tmp_path: Path, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SegmentProperties(tmp_path / "dataset")
    known = properties.replace("one", properties.of("one"), row(a__b=[1]))
    assert known is not None
    (tmp_path / "log").mkdir()
    with monkeypatch.context() as planned:
        planned.setenv(LOG, str(tmp_path / "log"))
        planned.setenv(PLAN, f"{point}:exception")
        with pytest.raises((RuntimeError, CommitUnknownError)):
            properties.replace("one", known, row(a__b=[2]))
    left = properties.of("one")
    assert left.row == row(a__b=[1 if point == "version.draft" else 2])
    assert properties.replace("one", left, row(a__b=[3])) is not None
    assert properties.of("one").row == row(a__b=[3])


def test_properties_of_several_segments_go_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a deletion of three is cut, all are there or none; the next one does what was left, and sets count."""
    for cut in range(1, 5):  # that of all, and one of each
        (tmp_path / f"log {cut}").mkdir()
        properties = SegmentProperties(tmp_path / f"{cut}")
        for name in ("one", "two", "three"):
            properties.replace(name, properties.of(name), row(a__b=[name]))
        known = {name: properties.of(name) for name in ("one", "two", "three")}
        with monkeypatch.context() as planned:
            planned.setenv(LOG, str(tmp_path / f"log {cut}"))
            planned.setenv(PLAN, f"version.publish:exception:{cut}")
            with pytest.raises((RuntimeError, CommitUnknownError)):
                properties.delete_all(known)
        there = [name for name in known if SegmentProperties(tmp_path / f"{cut}").of(name).row is not None]
        assert there == [], cut  # that of all was published
        assert properties.replace("two", properties.of("two"), row(a__b=["again"])) is not None
        properties.replace("four", properties.of("four"), row(a__b=["four"]))
        assert properties.delete_all({name: properties.of(name) for name in ("one", "three", "four")})
        assert properties.of("two").row == row(a__b=["again"])
        assert [properties.of(name).row for name in ("one", "three", "four")] == [None] * 3


def test_a_deletion_that_was_cut_before_its_file_leaves_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SegmentProperties(tmp_path)
    for name in ("one", "two"):
        properties.replace(name, properties.of(name), row(a__b=[name]))
    known = {name: properties.of(name) for name in ("one", "two")}
    (tmp_path / "log").mkdir()
    with monkeypatch.context() as planned:
        planned.setenv(LOG, str(tmp_path / "log"))
        planned.setenv(PLAN, "version.draft:exception")
        with pytest.raises(RuntimeError):
            properties.delete_all(known)
    assert [properties.of(name).row for name in known] == [row(a__b=["one"]), row(a__b=["two"])]
    assert properties.delete_all(known)
    assert properties.delete_all(known)  # which are no longer there
    assert [properties.of(name).revision for name in known] == [0, 0]


@pytest.mark.parametrize(
    "change",
    [
        lambda call: put(call, "one", row(a=["other"])),
        lambda call: call("DeleteSegmentProperties", segments=[{"segment_id": {"id": "one"}}]),
    ],
    ids=["set", "delete"],
)
def test_a_client_that_loses_all_the_time_may_try_again(
    call: Caller, change: Callable[[Caller], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(call, "one", row(a=["kept"]))
    monkeypatch.setattr("chunkmill.engine.catalog.server.properties.publish", partial(publish, most=3))
    with monkeypatch.context() as patch:
        patch.setattr(VersionFiles, "create", lambda *_: False)
        with pytest.raises(WriteError, match="other writers keep changing the properties of segment 'one'") as caught:
            change(call)
    assert caught.value.transient and not isinstance(caught.value, CommitUnknownError)
    assert stored(call, "one")["one"][0] == [{"property:a": ["kept"]}]
