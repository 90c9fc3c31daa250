"""Every answer of the recorded runs of computed tables is ours too, or is one that differs on purpose.

The answers are those of ``../shared/golden/query/geneva_local_*.json``: 61 calls in three runs, each one after the
other, on a table that those before have changed. A run is made once; each call is compared with what was recorded, but
for what a row of ``docs/differences.md`` says.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill.engine.tables import UDF, Job, connect, skip_on_error, udf
from places import REPOSITORY, SHARED
from recorded_runs import COUNTS, VERSIONS, Run, Told, raised, read, without

FOLDER: Final = SHARED / "golden" / "query"
RUNS: Final = ("backfill", "resume", "load_columns")
DIFFERENCES: Final = REPOSITORY / "docs" / "differences.md"
IS_THERE: Final = (FOLDER / "geneva_local_backfill.json").exists()

pytestmark = [pytest.mark.wide, pytest.mark.skipif(not IS_THERE, reason="the recorded calls are not at hand")]

BEFORE: Final = "an invalid condition, source or view"
FAILED: Final = "a function that fails"
BATCHES: Final = "`batch_index` of a row that was skipped"
OWNERS: Final = "errors of a column"
FILES: Final = "a fragment in which nothing was computed"
RECORDS: Final = "records of jobs and errors"
RELOADED: Final = "a source that is loaded again with another `on_missing`"


@cache
def recorded(run: str) -> list[dict[str, Any]]:
    """The recorded calls of a run."""
    found: list[dict[str, Any]] = json.loads((FOLDER / f"geneva_local_{run}.json").read_text())
    return found


@udf
def double(a: int) -> int:
    return a * 2


@udf(version="2")
def hundredfold(a: int) -> int:
    return a * 200


@udf(on_error=skip_on_error())
def picky(a: int) -> int:
    if a in (3, 17):
        raise ValueError(f"bad {a}")
    return a


@udf
def fails(a: int) -> int:
    raise ValueError("boom")


def backfill_run(folder: Path) -> Run:
    run = Run(folder, 20, 10)
    table = run.table
    table.add_columns({"doubled": double})
    run.noted = table.version
    run.say("plan", lambda said: run.planned(said, "doubled"))
    run.say("plan where", lambda said: run.planned(said, "doubled", where="a>15"))
    run.say("plan unknown", lambda said: run.refused(said, lambda: table.plan_backfill("zz")))
    run.say("backfill where", lambda said: run.filled(said, "doubled", 4, where="a>15"))
    run.version()
    run.rows("doubled", last=6)

    def fragments(said: str) -> Told:
        ours = [
            (one.fragment_id, one.count_rows(), [list(file.fields) for file in one.data_files()])
            for one in lance.dataset(table.uri).get_fragments()
        ]
        (first, second), theirs = read(said), []
        for id_, rows, files in (first, second):
            theirs.append((id_, rows, [fields for _, fields in files]))
        assert theirs[0][2].pop() == [2]  # they wrote nulls for the fragment in which nothing was asked for
        return Told(ours, theirs, (FILES,))

    run.say("frags", fragments)
    run.say("plan", lambda said: run.planned(said, "doubled"))
    run.say("backfill rest", lambda said: run.filled(said, "doubled", 16))
    run.rows("doubled")
    run.say("plan", lambda said: run.planned(said, "doubled"))

    def nothing(said: str) -> Told:
        run.noted = table.version
        return run.filled(said, "doubled", 0)

    run.say("backfill noop", nothing)
    run.version(is_same=True)
    run.say("multi", lambda said: run.refused(said, lambda: table.backfill(["doubled", "b"])))
    run.say("[]", lambda said: run.refused(said, lambda: table.backfill([])))
    run.say("unknown", lambda said: run.refused(said, lambda: table.backfill("zz")))
    run.say("non udf col", lambda said: run.refused(said, lambda: table.backfill("a")))
    run.say("bad where", lambda said: run.refused(said, lambda: table.backfill("doubled", where="zz >"), BEFORE))
    run.say("num_frags", lambda said: run.planned(said, "doubled", where="1=1", num_frags=1))
    run.say("alter", lambda said: Told(table.alter_columns({"path": "doubled", "udf": hundredfold}), read(said)))  # type: ignore[func-returns-value]
    run.say("plan after alter", lambda said: run.planned(said, "doubled"))
    run.say("backfill v2", lambda said: run.filled(said, "doubled", 20))
    run.rows("doubled")
    run.say("override udf", lambda said: run.filled(said, "doubled", 20, udf=double))
    run.rows("doubled")

    def in_background(said: str) -> Told:
        job = table.backfill_async("doubled")
        assert isinstance(job, Job)
        result = job.result(60)
        theirs = re.search(
            r"'t', \['doubled'\], '(\w+)'.*status='(\w+)', table_name='(\w+)'.*, '(\w+)', (\w+)\)$", said
        )
        assert theirs is not None and job.job_id == result.job_id
        ours = (job.status, result.status, result.table_name, job.status, repr(job.done()))
        return Told((job.table_name, job.column_names, ours), ("t", ["doubled"], theirs.groups()))

    run.say("async", in_background)
    say_of_errors(run)
    return run


def say_of_errors(run: Run) -> None:
    """The calls of the first run about functions that fail, and what is told of jobs."""
    table = run.table

    def skipped(said: str) -> Told:
        table.add_columns({"bad": picky})
        return run.filled(said, "bad", 18, 2)

    run.say("skip", skipped)
    run.rows("bad")

    def errors(said: str) -> Told:
        first = table.get_errors(column_name="bad")[0]
        theirs = re.match(
            r"\[ErrorRecord\(error_id='[^']+', error_type='(\w+)', error_message='([^']+)', error_trace='Tr", said
        )
        assert theirs is not None
        assert first.error_trace.startswith("Traceback") and first.error_id
        return Told((first.error_type, first.error_message), theirs.groups(), (RECORDS,))

    def failed_rows(said: str) -> Told:
        return Told(table.get_failed_row_addresses(run.results["bad"].job_id, "bad"), read(said))

    run.say("errors", errors)
    run.say("failed rows", failed_rows)

    def of_function(said: str) -> Told:
        found = table.get_failed_row_addresses(run.results["bad"].job_id, "picky")
        return Told((found, len(read(said))), ([], 2), (OWNERS,))

    run.say("failed rows udfname", of_function)

    def failed(said: Mapping[str, str]) -> Told:
        table.add_columns({"fail": fails})
        return run.refused(said, lambda: table.backfill("fail"), FAILED)

    run.say("fail", failed)
    run.rows("fail")

    def all_errors(said: str) -> Told:
        found = [
            (e.error_type, e.error_message, e.column_name, e.row_address, e.fragment_id, e.attempt, e.max_attempts)
            for e in table.get_errors()
        ]
        return Told(found, [(*one[:5], *one[6:]) for one in read(said)], (BATCHES,))

    run.say("errors2", all_errors)

    def jobs(said: str) -> Told:
        found = [(j.job_type, j.status, j.table_name, j.column_name) for j in table.jobs()]
        theirs = [one[1:] for one in read(said)]
        del theirs[3]  # of the condition that is none
        return Told(found, theirs, (BEFORE,))

    run.say("jobs", jobs)

    def one_job(said: str) -> Told:
        (job,) = (one for one in table.jobs() if one.column_name == "bad")
        metrics = {one.name: (one.n, one.total) for one in job.metrics}
        theirs = re.search(
            r"table_name='(\w+)', column_name='(\w+)'.*job_type='(\w+)'.*status='(\w+)'.*'\{(\"where\": [^,]*)", said
        )
        assert theirs is not None and "n=2, total=0" in said and "name='fragments', n=2, total=2" in said
        assert job.completed_at is not None and job.launched_at < job.completed_at and job.launched_by
        where = json.dumps({"where": json.loads(job.config)["where"]})[1:-1]
        ours = (job.table_name, job.column_name, job.job_type, job.status, where)
        counted = (metrics["rows_skipped_on_error"], metrics["fragments"])
        return Told((ours, counted), (theirs.groups(), ((2, 0), (2, 2))), (RECORDS,))

    run.say("job", one_job)
    run.say("tables", lambda said: Told(connect(str(run.folder)).table_names(), read(said)))

    def listed(said: str) -> Told:
        ours = sorted(one.name for one in run.folder.iterdir())
        return Told((ours, "t.lance" in read(said)), (["t.lance"], True), (RECORDS,))

    run.say("ls", listed)


def noting(path: Path, fails_at: int | None = None) -> UDF:
    """A function that notes its calls."""

    @udf(version="1")
    def noted(a: int) -> int:
        with path.open("a") as file:
            file.write(f"{a}\n")
        if a == fails_at:
            raise ValueError(f"no {a}")
        return a * 2

    return noted


def resume_run(folder: Path) -> Run:
    run = Run(folder, 14, 6)
    table, path = run.table, folder / "calls"

    def calls() -> list[int]:
        found = sorted(int(line) for line in path.read_text().split()) if path.exists() else []
        path.unlink(missing_ok=True)
        return found

    table.add_columns({"c": noting(path, 9)})
    with pytest.raises(RuntimeError, match="no 9"):
        table.backfill("c", checkpoint_size=2, batch_checkpoint_flush_interval_seconds=0)
    calls()
    function = noting(path)
    run.say("resume", lambda said: run.filled(said, "c", 14, udf=function))
    run.say("calls after resume", lambda said: Told(calls(), read(said)))
    run.rows("c")

    def filled() -> str:
        return table.backfill("c", udf=function).status

    def appended(said: str) -> Told:
        lance.write_dataset(pa.table({"a": [12, 13], "b": [0, 0]}), table.uri, mode="append")
        return Told((filled(), calls(), run.values("c")), read(said))

    run.say("append+backfill", appended)

    def updated(said: str) -> Told:
        lance.dataset(table.uri).update({"a": "1000"}, where="a = 0")
        plan = dataclasses.asdict(table.plan_backfill("c", udf=function))
        assert plan["stale_rows"] == 1
        return Told(
            (None, without(plan, "version", "stale_rows")), (None, without(read(said)[1], "version")), (VERSIONS,)
        )

    run.say("update input then plan", updated)

    def after_update(said: str) -> Told:
        status = filled()
        return Told((status, calls(), table.to_arrow().select(["a", "c"]).to_pylist()), read(said))

    run.say("backfill after update", after_update)

    def forced(said: str) -> Told:
        return Told((table.backfill("c", udf=function, where="1=1").status, calls()), read(said))

    run.say("force all", forced)
    run.say("force all again", forced)
    return run


def load_run(folder: Path) -> Run:
    run = Run(folder, 8, 4)
    table = run.table

    def source(name: str, **columns: Any) -> str:
        pq.write_table(pa.table(columns), folder / name)
        return str(folder / name)

    def loaded(said: str, place: str, column: str = "emb", **options: Any) -> Told:
        job = table.load_columns(place, "a", [column], **options)
        assert [one.job_id for one in table.jobs()][-1] == job
        return Told((type(job), len(job)), (type(read(said)), len(read(said))))

    def rows(said: str) -> Told:
        return Told(list(zip(run.values("a"), run.values("emb"), strict=True)), read(said))

    new = source("new.parquet", a=[1, 3, 99], emb=["e1", "e3", "e99"])
    more = source("more.parquet", a=[2, 5], emb=["x2", "x5"])
    run.say("load new", lambda said: loaded(said, new))
    run.say("rows", rows)
    run.say("carry", lambda said: loaded(said, more))
    run.say("rows", rows)
    run.say("null", lambda said: loaded(said, more, on_missing="null"))

    def nulls(said: str) -> Told:
        kept = [(a, emb if a in (2, 5) else None) for a, emb in read(said)]
        return rows(repr(kept))._replace(rows=(RELOADED,))

    run.say("rows", nulls)

    def refused(said: str) -> Told:
        with pytest.raises(ValueError, match="on_missing='error': 6 destination rows have no match"):
            table.load_columns(more, "a", ["emb"], on_missing="error")
        return Told(type(read(said)), str, (RELOADED,))

    run.say("error", refused)

    def wrong(
        name: str, place: str, pk: str = "a", columns: tuple[str, ...] = ("emb",), *rows: str, **options: Any
    ) -> None:
        run.say(
            name, lambda said: run.refused(said, lambda: table.load_columns(place, pk, [*columns], **options), *rows)
        )

    wrong("bad on_missing", new, on_missing="x")
    wrong("bad col", new, "a", ("zz",))
    wrong("bad pk", new, "zz")
    wrong("no cols", new, "a", ())
    doubled = source("doubled.parquet", a=[1, 1], emb=["e", "f"])
    run.say(
        "dup pk", lambda said: Told(failure(lambda: table.load_columns(doubled, "a", ["emb"])), inner(said), (BEFORE,))
    )
    wrong("type mismatch", source("types.parquet", a=[1], emb=[1.5]))
    wrong("dtype pk mismatch", source("keys.parquet", a=pa.array([1], pa.int32()), emb=["e"]))
    missing = str(folder / "src5.foo")
    run.say(
        "unknown fmt", lambda said: Told(failure(lambda: table.load_columns(missing, "a", ["emb"]))[0], inner(said)[0])
    )
    return run


def failure(call: Callable[[], object]) -> tuple[str, str]:
    """The class of builtins that a call raises, also from a job, and the text."""
    error = raised(call)
    cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
    kinds = [kind.__name__ for kind in type(cause).__mro__ if kind in (FileNotFoundError, ValueError)]
    return kinds[0], re.sub(r"^CM\d{3}: ", "", str(cause))


def inner(said: Mapping[str, str]) -> tuple[str, str]:
    """The class and the text that a recorded error of a job wraps."""
    found = re.search(r"builtins\.(\w+): (.*)", said["error"], re.DOTALL)
    assert found is not None
    return found[1], found[2]


MADE: Final = {"backfill": backfill_run, "resume": resume_run, "load_columns": load_run}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Told]:
    """Our answers to all calls."""
    found = {}
    for name in RUNS:
        run = MADE[name](tmp_path_factory.mktemp(name))
        calls = recorded(name)
        assert [step for step, _ in run.steps] == [call["call"] for call in calls]
        for number, ((_, step), call) in enumerate(zip(run.steps, calls, strict=True)):
            found[name, number] = step(call.get("result") or call)
    return found


def all_calls() -> list[Any]:
    return [
        pytest.param(run, number, id=f"{run}-{number}-{call['call']}")
        for run in (RUNS if IS_THERE else ())
        for number, call in enumerate(recorded(run))
    ]


@pytest.mark.parametrize(("run", "number"), all_calls())
def test_an_answer_is_the_recorded_one(run: str, number: int, told: Mapping[tuple[str, int], Told]) -> None:
    answer = told[run, number]
    assert answer.ours == answer.recorded


def test_all_calls_are_replayed_and_differences_are_told_of(told: Mapping[tuple[str, int], Told]) -> None:
    assert len(told) == 61
    named = {row for answer in told.values() for row in answer.rows}
    assert named == {VERSIONS, COUNTS, BEFORE, FAILED, BATCHES, OWNERS, FILES, RECORDS, RELOADED}
    section = DIFFERENCES.read_text().partition("\n## Computed tables\n")[2].partition("\n## ")[0]
    cases = {line.split(" | ")[0].removeprefix("| ") for line in section.splitlines() if line.startswith("| ")}
    assert named <= cases
