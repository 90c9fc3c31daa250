"""Every answer of the recorded runs of views is ours too, or is one that differs on purpose.

The answers are those of ``../shared/golden/query/geneva_local_mv*.json``: 34 calls in two runs, each one after the
other, as in ``test_recorded_backfills.py``.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import lance
import pyarrow as pa
import pytest
from chunkmill.engine.tables import Table, TableConnection, connect, udf
from places import REPOSITORY, SHARED
from recorded_runs import COUNTS, Told, raised, read, without

FOLDER: Final = SHARED / "golden" / "query"
IS_THERE: Final = (FOLDER / "geneva_local_mv.json").exists()

pytestmark = [pytest.mark.wide, pytest.mark.skipif(not IS_THERE, reason="the recorded calls are not at hand")]

SET: Final = "`__is_set` of a view's row"
PLAN: Final = "the plan of a refresh"
COMMITS: Final = "a refresh across several fragments or back to an older version"
KEPT: Final = "what a view keeps of its query"
NO_VIEW: Final = "an invalid condition, source or view"

Step = Callable[[Any], Told]


@udf
def square(v: int) -> int:
    return v * v


class ViewRun:
    """A table, a view of it, and the calls of a run, each with its name in the recording."""

    def __init__(self, folder: Path) -> None:
        self.tables: TableConnection = connect(str(folder), executor="inline")
        data = pa.table({"id": range(5), "v": range(1, 6)})
        lance.write_dataset(data, folder / "src.lance", enable_stable_row_ids=True)
        self.source = self.tables.open_table("src")
        self.view: Table = self.source
        self.steps: list[tuple[str, Step]] = []

    def changed(self, name: str, **options: Any) -> None:
        """Change the source, between two calls."""
        getattr(lance.dataset(self.source.uri), name)(**options)

    def make(self, said: str) -> Told:
        query = self.source.search(None).where("id != 1").select({"id": "id", "v": "v", "sq": square})
        self.view = self.tables.create_materialized_view("mv", query)
        return Told(f"<Table ['{self.view.name}']>", said)

    def rows(self, said: str) -> Told:
        return Told(of(self.view), [without(row, "__is_set") for row in read(said)], (SET,))

    def rows_by(self, wanted: dict[int, int]) -> Step:
        """The rows where the recorded run did not get on: ids, and what ``v`` is."""

        def told(_: str) -> Told:
            found = {row["id"]: (row["__source_row_id"], row["v"], row["sq"]) for row in of(self.view)}
            return Told(found, {id_: (id_, v, v * v) for id_, v in wanted.items()}, (COMMITS,))

        return told

    def planned(self, pending: int, stale: int, fragments: int) -> Step:
        """A plan: its counts of the source are as recorded, and those of work are ours."""

        def told(said: str) -> Told:
            plan, theirs = dataclasses.asdict(self.view.plan_refresh()), read(said)
            assert (plan["has_work"], plan["total_rows_pending"]) == (pending + stale > 0, pending)
            assert (plan["stale_rows"], plan["new_source_fragments"]) == (stale, fragments)
            assert plan["skipped_rows"] == plan["total_rows"] - pending
            names = ("table_name", "total_fragments", "total_rows", "job_type")
            return Told({name: plan[name] for name in names}, {name: theirs[name] for name in names}, (PLAN,))

        return told

    def refreshed(self, rows: int, *, fails: bool = False, **options: Any) -> Step:
        def told(said: Any) -> Told:
            result = dataclasses.asdict(self.view.refresh(**options))
            assert result["rows_refreshed"] == rows and result["launched_at"] <= result["completed_at"]
            if fails:
                assert "preempted" in said["error"]
                return Told("DONE", "DONE", (COMMITS,))
            status, rest = (read(said), {}) if said.startswith("'") else ("DONE", read(said))
            names = [name for name in rest if name.startswith(("cluster", "manifest")) or name == "table_name"]
            ours = {name: result[name] for name in names}
            return Told((result["status"], ours), (status, {name: rest[name] for name in names}), (COUNTS,))

        return told


def of(view: Table) -> list[dict[str, Any]]:
    """The rows of a view in the order of its source, without what says that they have their values."""
    rows = sorted(view.to_arrow().to_pylist(), key=lambda row: row["__source_row_id"])
    return [without(row, "__is_set") for row in rows]


def refused(call: Callable[[], object]) -> Step:
    def told(said: Mapping[str, str]) -> Told:
        error = raised(call)
        kinds = {one.__name__ for one in type(error).__mro__}
        text = str(error).partition("\n  hint")[0].replace("\n", " | ")
        return Told((said["error_type"] in kinds, said["error"] in text), (True, True))

    return told


def first_run(folder: Path) -> list[tuple[str, Step]]:
    run = ViewRun(folder)
    say = run.steps.append
    say(("stable?", lambda said: Told(str(run.source._lance.at().has_stable_ids), said)))
    say(("create mv", run.make))
    say(("mv schema", lambda said: Told(run.view.schema.names, read(said))))

    def metadata(said: str) -> Told:
        keys = {key.decode().rpartition(":")[2] for key in run.view.schema.metadata}
        assert keys == {"query", "base"} and "id != 1" in str(run.view.schema.metadata)
        return Told("query" in keys, "geneva::view::query" in said, (KEPT,))

    say(("mv meta", metadata))
    say(("mv rows", run.rows))
    say(("plan", run.planned(4, 4, 1)))
    say(("refresh", run.refreshed(4)))
    say(("mv rows", run.rows))
    say(("plan", run.planned(0, 0, 0)))

    def after_add_and_delete(said: str) -> Told:
        run.changed("insert", data=pa.table({"id": [5, 6], "v": [6, 7]}))
        run.changed("delete", predicate="id = 0")
        return run.planned(2, 1, 1)(said)

    say(("plan after add/delete", after_add_and_delete))
    say(("refresh", run.refreshed(2, fails=True)))
    say(("mv rows", run.rows_by({2: 3, 3: 4, 4: 5, 5: 6, 6: 7})))

    def after_update(said: str) -> Told:
        run.changed("update", updates={"v": "100"}, where="id = 2")
        return run.planned(1, 1, 1)(said)

    say(("plan after update", after_update))
    say(("refresh after update", run.refreshed(1, fails=True)))
    say(("mv rows", run.rows_by({2: 100, 3: 4, 4: 5, 5: 6, 6: 7})))
    say(("refresh back", run.refreshed(2, fails=True, src_version=1)))
    say(("mv rows", run.rows_by({0: 1, 2: 3, 3: 4, 4: 5})))
    say(("refresh where", lambda said: refused(lambda: run.view.refresh(where="id = 2"))(said)))
    say(("output_limit", lambda said: refused(lambda: run.view.refresh(output_limit=1))(said)))

    def no_view(said: Mapping[str, str]) -> Told:
        error = raised(run.source.refresh)
        text = "Destination dataset must have view metadata."
        return Told((isinstance(error, ValueError), text in str(error)), (True, text in said["error"]), (NO_VIEW,))

    say(("refresh on plain table", no_view))

    def pinned(said: str) -> Told:
        lance.write_dataset(pa.table({"id": [1, 2]}), folder / "plain.lance")
        plain = run.tables.open_table("plain")
        run.view = run.tables.create_materialized_view("mv2", plain.search(None).select(["id"]))
        return Told(f"<Table ['{run.view.name}']>", said)

    say(("create mv2 no stable", pinned))

    def refreshed(said: str) -> Told:
        status, rows = read(said)
        done = run.view.refresh().status
        return Told((done, of(run.view)), (status, [without(row, "__is_set") for row in rows]), (SET,))

    say(("refresh mv2", refreshed))

    def after_add(said: Mapping[str, str]) -> Told:
        lance.dataset(folder / "plain.lance").insert(pa.table({"id": [3]}))
        return refused(run.view.refresh)(said)

    say(("refresh mv2 after add", after_add))
    return run.steps


def second_run(folder: Path) -> list[tuple[str, Step]]:
    run = ViewRun(folder)
    say = run.steps.append
    say(("create mv", run.make))
    say(("refresh", run.refreshed(4)))
    say(("mv rows", run.rows))

    def after_delete(said: str) -> Told:
        run.changed("delete", predicate="id = 0")
        return run.planned(0, 1, 0)(said)

    say(("plan after delete", after_delete))
    say(("refresh after delete", run.refreshed(0)))
    say(("mv rows", run.rows))

    def after_update(said: str) -> Told:
        run.changed("update", updates={"v": "100"}, where="id = 2")
        return run.planned(1, 1, 1)(said)

    say(("plan after update", after_update))
    say(("refresh after update", run.refreshed(1)))
    say(("mv rows", run.rows))
    say(("refresh back", run.refreshed(2, fails=True, src_version=1)))
    say(("mv rows", run.rows_by({0: 1, 2: 3, 3: 4, 4: 5})))
    return run.steps


RUNS: Final = {"mv": first_run, "mv2": second_run}


def recorded(run: str) -> list[dict[str, Any]]:
    """The recorded calls of a run."""
    found: list[dict[str, Any]] = json.loads((FOLDER / f"geneva_local_{run}.json").read_text())
    return found


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Told]:
    """Our answers to all calls."""
    found = {}
    for name, run in RUNS.items():
        steps, calls = run(tmp_path_factory.mktemp(name)), recorded(name)
        assert [step for step, _ in steps] == [call["call"] for call in calls]
        for number, ((_, step), call) in enumerate(zip(steps, calls, strict=True)):
            found[name, number] = step(call.get("result") or call)
    return found


@pytest.mark.parametrize(
    ("run", "number"),
    [
        pytest.param(run, number, id=f"{run}-{number}-{call['call']}")
        for run in (RUNS if IS_THERE else ())
        for number, call in enumerate(recorded(run))
    ],
)
def test_an_answer_is_the_recorded_one(run: str, number: int, told: Mapping[tuple[str, int], Told]) -> None:
    answer = told[run, number]
    assert answer.ours == answer.recorded


def test_all_calls_are_replayed_and_differences_are_told_of(told: Mapping[tuple[str, int], Told]) -> None:
    assert len(told) == 34
    named = {row for answer in told.values() for row in answer.rows}
    assert named == {COUNTS, SET, PLAN, COMMITS, KEPT, NO_VIEW}
    page = (REPOSITORY / "docs" / "differences.md").read_text()
    section = page.partition("\n## Computed tables\n")[2].partition("\n## ")[0]
    assert named <= {line.split(" | ")[0].removeprefix("| ") for line in section.splitlines() if line.startswith("| ")}
