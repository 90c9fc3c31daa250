"""Every answer of Rerun's server about clients, entries, names and URLs is ours too, or is one that differs on purpose.

The answers are those of ``../shared/golden/query/errors_0.33.1.json``. Where that is at hand, each text below is
compared with it, and each of its rows has to be here.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chunkmill.engine.catalog import AlreadyExistsError, CatalogClient, DatasetEntry, EntryId, EntryKind, NotFoundError
from places import SHARED

GOLDEN = SHARED / "golden" / "query" / "errors_0.33.1.json"
UNKNOWN = "18E9F188B36ECCA45dc2d7e76ac0537a"


class World:
    """A catalog as the recorded one was."""

    def __init__(self, lake: Path) -> None:
        self.client = CatalogClient(lake)
        self.ds = self.client.create_dataset("ds", exist_ok=True)
        self.deleted = copy.copy(self.ds)
        self.deleted._last_row = replace(self.ds._last_row, id=EntryId.new(), name="deleted")

    @property
    def blueprints(self) -> DatasetEntry:
        found = self.ds.blueprint_dataset()
        assert found is not None
        return found

    def url(self, *arguments: Any) -> str:
        text = self.ds.segment_url(*arguments)
        return text.replace(self.client.url, "<URL>").replace(str(self.ds.id), "<ID>")


Call = Callable[[World], Any]

ERRORS: dict[str, tuple[Call, type[Exception], str]] = {
    "create dup": (lambda w: w.client.create_dataset("ds"), AlreadyExistsError, "Entry name 'ds' already exists"),
    "create_dataset('a/b'..)": (
        lambda w: w.client.create_dataset("a/b"),
        ValueError,
        "invalid entry name: name 'a/b' contains invalid character '/'",
    ),
    "create_dataset('ünï'..)": (
        lambda w: w.client.create_dataset("ünï"),
        ValueError,
        "invalid entry name: name 'ünï' contains invalid character 'ü'",
    ),
    "create_dataset('xxxxxxxxxxxx'..)": (
        lambda w: w.client.create_dataset("x" * 181),
        ValueError,
        f"invalid entry name: name '{'x' * 181}' exceeds maximum length of 180 characters (got 181)",
    ),
    'create_dataset("a\'b"..)': (
        lambda w: w.client.create_dataset("a'b"),
        ValueError,
        "invalid entry name: name 'a'b' contains invalid character '''",
    ),
    "get_dataset()": (lambda w: w.client.get_dataset(), ValueError, "Either 'id' or 'name' must be provided."),
    "get_dataset('nope')": (
        lambda w: w.client.get_dataset("nope"),
        LookupError,
        "No dataset found with name 'nope'",
    ),
    "get_dataset(name,id)": (
        lambda w: w.client.get_dataset("ds", id=w.ds.id),
        ValueError,
        "Only one of 'id' or 'name' must be provided.",
    ),
    "get_dataset(id=bad)": (
        lambda w: w.client.get_dataset(id="zz"),
        TypeError,
        "invalid Tuid: invalid digit found in string",
    ),
    "get_dataset(id=unknown)": (
        lambda w: w.client.get_dataset(id=UNKNOWN),
        NotFoundError,
        f"Entry id '{UNKNOWN}' not found",
    ),
    "get_dataset('__entries')": (lambda w: w.client.get_dataset("__entries"), NotFoundError, "Entry id '"),
    "get_table('ds')": (lambda w: w.client.get_table("ds"), NotFoundError, "table with entry ID '"),
    "get_table('nope')": (lambda w: w.client.get_table("nope"), LookupError, "No table found with name 'nope'"),
    "get_table(id=unknown)": (lambda w: w.client.get_table(id=UNKNOWN), NotFoundError, f"'{UNKNOWN}' not found"),
    "EntryId(int)": (lambda w: EntryId(5), TypeError, "argument 'id': 'int' object"),  # type: ignore[arg-type]
    "hash(entry)": (lambda w: hash(w.ds), TypeError, "unhashable type: 'DatasetEntry'"),
    "set_name dup": (
        lambda w: w.client.create_dataset("a b").set_name("ds"),
        AlreadyExistsError,
        " already exists",
    ),
    "set_name bad": (lambda w: w.ds.set_name("a/b"), ValueError, "name 'a/b' contains invalid character '/'"),
    "delete again": (lambda w: w.deleted.delete(), NotFoundError, " not found"),
    "segment_ids after delete": (lambda w: w.deleted.segment_ids(), NotFoundError, " not found"),
    "segment_url('segA', None, 1)": (
        lambda w: w.url("segA", None, 1),
        ValueError,
        "If `start` or `end` is specified, `timeline` must also be specified.",
    ),
    "segment_url('segA', 'frame', 'x')": (
        lambda w: w.url("segA", "frame", "x"),
        ValueError,
        "invalid literal for int() with base 10: 'x'",
    ),
}
"""Calls, and the error of each: its class, and a part of its text."""

DAY = datetime(2024, 1, 1, tzinfo=UTC)

RESULTS: dict[str, tuple[Call, Any]] = {
    "entries() empty": (lambda w: w.client.tables(), []),
    "entries(include_hidden)": (
        lambda w: [str(e) for e in w.client.tables(include_hidden=True)],
        ["Entry(EntryKind.TABLE, '__entries')"],
    ),
    "entry_names(hidden)": (lambda w: w.client.table_names(include_hidden=True), ["__entries"]),
    "repr(client)": (lambda w: repr(w.client) == f"CatalogClient({w.client.url})", True),
    "client.url": (lambda w: w.client.url.endswith("lake"), True),
    "catalog": (lambda w: w.ds.catalog is w.client, True),
    "repr ds": (lambda w: repr(w.ds), "Entry(EntryKind.DATASET, 'ds')"),
    "str ds": (lambda w: str(w.ds), "Entry(EntryKind.DATASET, 'ds')"),
    "ds.id": (lambda w: EntryId(str(w.ds.id)) == w.ds.id and len(str(w.ds.id)), 32),
    "ds.kind": (lambda w: (w.ds.kind, int(w.ds.kind), str(w.ds.kind)), (EntryKind.DATASET, 1, "EntryKind.DATASET")),
    "ds.created_at": (lambda w: abs(datetime.now(UTC) - w.ds.created_at) < timedelta(minutes=5), True),
    "EntryKind": (
        lambda w: {kind.name: int(kind) for kind in sorted(EntryKind, key=lambda kind: kind.name)},
        {"ASSET_DATASET": 6, "BLUEPRINT_DATASET": 5, "DATASET": 1, "DATASET_VIEW": 2, "TABLE": 3, "TABLE_VIEW": 4},
    ),
    "__entries schema": (
        lambda w: str(w.client.get_table("__entries").arrow_schema()),
        (
            "id: fixed_size_binary[16] not null\nname: string not null\nentry_kind: int32 not null\n"
            "created_at: timestamp[ns] not null\nupdated_at: timestamp[ns] not null\n"
            "-- schema metadata --\nsorbet:version: '0.1.3'"
        ),
    ),
    "create dup exist_ok": (lambda w: w.client.create_dataset("ds", exist_ok=True) == w.ds, True),
    **{
        f"create_dataset({name!r}..)": (
            lambda w, name=name: repr(w.client.create_dataset(name)),
            f"Entry(EntryKind.DATASET, {name!r})",
        )
        for name in ("a b", "a.b", "a[b]", "a:b", "a-b")
    },
    "get_dataset(id=str)": (lambda w: w.client.get_dataset(id=str(w.ds.id)) == w.ds, True),
    "EntryId eq": (lambda w: EntryId(UNKNOWN) == EntryId(UNKNOWN.lower()), True),
    "'ds' in entries": (lambda w: "ds" in w.client.entries(), True),
    "id in entries": (lambda w: w.ds.id in w.client.entries(), True),
    "ds == 5": (lambda w: w.ds == 5, False),
    "empty segment_ids": (lambda w: w.ds.segment_ids(), []),
    "bp": (
        lambda w: (w.blueprints.name == f"__bp_{w.ds.id}", w.blueprints.kind),
        (True, EntryKind.BLUEPRINT_DATASET),
    ),
    "bp.blueprint_dataset": (lambda w: w.blueprints.blueprint_dataset(), None),
    "blueprints": (lambda w: w.ds.blueprints(), []),
    "default_blueprint": (lambda w: w.ds.default_blueprint(), None),
    "set None": (lambda w: w.ds.set_default_blueprint(None), None),
    "set_name": (lambda w: (w.ds.set_name("renamed"), w.ds.name), (None, "renamed")),
    "update": (lambda w: (w.ds.update(name="ren2"), w.ds.name), (None, "ren2")),
    "update none": (lambda w: (w.ds.update(), w.ds.name), (None, "ds")),
    "delete": (lambda w: w.ds.delete(), None),
    "name after delete": (lambda w: w.deleted.name, "deleted"),
    "segment_url('segA',)": (lambda w: w.url("segA"), "<URL>/dataset/<ID>?segment_id=segA"),
    "segment_url('segA', 'frame')": (
        lambda w: w.url("segA", "frame"),
        "<URL>/dataset/<ID>?segment_id=segA#when=frame@1677-09-21T00:12:43.145224193Z",
    ),
    "segment_url('segA', 'frame', 1)": (
        lambda w: w.url("segA", "frame", 1),
        "<URL>/dataset/<ID>?segment_id=segA#when=frame@1",
    ),
    "segment_url('segA', 'frame', 1, 10)": (
        lambda w: w.url("segA", "frame", 1, 10),
        "<URL>/dataset/<ID>?segment_id=segA#when=frame@1&time_selection=frame@1..10",
    ),
    "segment_url('segA', 'frame', None, 10)": (
        lambda w: w.url("segA", "frame", None, 10),
        "<URL>/dataset/<ID>?segment_id=segA#when=frame@1677-09-21T00:12:43.145224193Z&time_selection=frame@10..10",
    ),
    "segment_url('segA', 't', datetime.datetime(2024, 1, 1, 0, 0, tzinfo=datetime.timezone.utc), "
    "datetime.datetime(2024, 1, 2, 0, 0, tzinfo=datetime.timezone.utc))": (
        lambda w: w.url("segA", "t", DAY, DAY + timedelta(days=1)),
        (
            "<URL>/dataset/<ID>?segment_id=segA#when=t@2024-01-01T00:00:00Z"
            "&time_selection=t@2024-01-01T00:00:00Z..2024-01-02T00:00:00Z"
        ),
    ),
    "segment_url('segA', 'd', datetime.timedelta(seconds=1, microseconds=500000), datetime.timedelta(days=1))": (
        lambda w: w.url("segA", "d", timedelta(seconds=1.5), timedelta(days=1)),
        "<URL>/dataset/<ID>?segment_id=segA#when=d@+1.5s&time_selection=d@+1.5s..+1d",
    ),
    "segment_url('segA', 'frame', np.int64(7))": (
        lambda w: w.url("segA", "frame", np.int64(7)),
        "<URL>/dataset/<ID>?segment_id=segA#when=frame@7",
    ),
    "segment_url('segA', 'frame', 5, datetime.datetime(2024, 1, 1, 0, 0, tzinfo=datetime.timezone.utc))": (
        lambda w: w.url("segA", "frame", 5, DAY),
        "<URL>/dataset/<ID>?segment_id=segA#when=frame@5&time_selection=frame@5..1704067200000000000",
    ),
}
"""Calls, and what each gives."""

DIFFERENT: dict[str, tuple[Call, Any]] = {
    "create_dataset(''..)": (lambda w: w.client.create_dataset(""), ValueError),
    "create_dataset('__hid'..)": (lambda w: w.client.create_dataset("__hid"), ValueError),
    "manifest_url": (lambda w: w.ds.manifest_url.startswith("file:///"), True),
    "hash(EntryId)": (lambda w: hash(w.ds.id) == hash(EntryId(str(w.ds.id))), True),
    "repr(id)": (lambda w: repr(w.ds.id) == f"EntryId('{w.ds.id}')", True),
    "set_default_blueprint unknown": (lambda w: w.ds.set_default_blueprint("nope"), LookupError),
    "old name": (lambda w: (w.ds.set_name("renamed"), w.client.get_dataset("ds")), LookupError),
    "delete __entries": (lambda w: w.client.get_table("__entries").delete(), ValueError),
    "entries": (lambda w: w.client.entry_names(), ["ds"]),
    "do_maintenance": (lambda w: w.ds.do_maintenance(), None),
    "do_global_maintenance": (lambda w: w.client.do_global_maintenance(), None),
    "version_info": (lambda w: w.client.version_info().version.partition(" ")[0], "chunkmill"),
    "connect bad url": (lambda w: CatalogClient("http://fleet"), ValueError),
    "connect refused": (lambda w: CatalogClient("rerun+http://127.0.0.1:9"), ValueError),
    "segment_url('no such seg',)": (lambda w: w.url("no such seg"), "<URL>/dataset/<ID>?segment_id=no%20such%20seg"),
    "segment_url('a&b#c',)": (lambda w: w.url("a&b#c"), "<URL>/dataset/<ID>?segment_id=a%26b%23c"),
    "segment_url('segA', 't', datetime.datetime(2024, 1, 1, 12, 0, 0, 5))": (
        lambda w: w.url("segA", "t", datetime(2024, 1, 1, 12, 0, 0, 5)),  # noqa: DTZ001 (without a zone on purpose)
        "<URL>/dataset/<ID>?segment_id=segA#when=t@2024-01-01T12:00:00.000005Z",
    ),
    "segment_url('segA', 'frame', 1.5)": (lambda w: w.url("segA", "frame", 1.5), TypeError),
    "segment_url('segA', 't', np.datetime64('2024-01-01'))": (
        lambda w: w.url("segA", "t", np.datetime64("2024-01-01")),
        "<URL>/dataset/<ID>?segment_id=segA#when=t@2024-01-01T00:00:00Z",
    ),
}
"""Calls that are answered otherwise than Rerun does, and what comes of them here; ``docs/differences.md`` has them."""

OF_OTHERS = (
    ("empty ", "bp.register_blueprint", "register", "handle", "wait", "iter_results", "cancel", "rows", "on_duplicate"),
    ("intra ", "layer", "conflict", "segments after", "partial", "index type", "archetype", "component_type", "schema"),
    ("prefix", "column_for", "sel ", "repr schema", "IndexSel", "Idx desc", "CompSel", "hash desc", "download"),
    ("segment_store", "filter_segments", "unregister", "segment_table", "create_fts", "create_vec", "list_search"),
    ("delete_search", "search_fts"),
)
"""What rows begin with that are about schemas and registration (see test_registration_answers.py), and queries."""


def golden() -> list[dict[str, str]]:
    rows: list[dict[str, str]] = json.loads(GOLDEN.read_text(encoding="utf-8")) if GOLDEN.exists() else []
    return rows


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog that is copied for each test."""
    made: Path = tmp_path_factory.mktemp("catalog") / "lake"
    World(made)
    return made


@pytest.fixture
def world(tmp_path: Path, lake: Path) -> World:
    return World(shutil.copytree(lake, tmp_path / "lake"))


@pytest.mark.parametrize("name", ERRORS)
def test_a_call_fails_as_it_does_with_rerun(name: str, world: World) -> None:
    call, kind, text = ERRORS[name]
    with pytest.raises(kind) as caught:
        call(world)
    assert text in str(caught.value)


@pytest.mark.parametrize("name", RESULTS)
def test_a_call_gives_what_it_gives_with_rerun(name: str, world: World) -> None:
    call, result = RESULTS[name]
    assert call(world) == result


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_call_that_differs_does_what_is_documented(name: str, world: World) -> None:
    call, result = DIFFERENT[name]
    if isinstance(result, type):
        with pytest.raises(result):
            call(world)
    else:
        assert call(world) == result


@pytest.mark.wide
def test_every_recorded_answer_is_looked_at() -> None:
    known = {**ERRORS, **RESULTS, **DIFFERENT}
    prefixes = tuple(prefix for some in OF_OTHERS for prefix in some)
    assert not [row["call"] for row in golden() if row["call"] not in known and not row["call"].startswith(prefixes)]
    for row in golden():
        if row["call"] in ERRORS:
            _, kind, text = ERRORS[row["call"]]
            assert row["error_type"] == kind.__name__
            assert text.replace(UNKNOWN, "") in row["error"].replace(UNKNOWN, "")
        elif row["call"].startswith("segment_url") and row["call"] in RESULTS:
            assert row["result"] == repr(RESULTS[row["call"]][1])
