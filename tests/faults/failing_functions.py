"""Functions that fail in generated patterns, under generated policies, and what a table tells of it.

    python tests/faults/failing_functions.py --count 300 --seed 0 [--executor spark]

Each case is a table in several fragments, rows for which a function raises one of several errors, some only the first
times, and a list of policies. Beside it stands what has to come of that: which rows are null, how many are told to have
failed, or which error ends the job. The column, the result, the error records, the addresses of failed rows and the job
have to say so; then a function that was mended is called for the failed rows alone. Prints what is wrong with its seed,
and ends with 1 then.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import lance
import pyarrow as pa
from chunkmill.engine.errors import JobFailedError, SkipThresholdExceededError
from chunkmill.engine.tables import (
    UDF,
    BackfillJobResult,
    Fail,
    Policy,
    Retry,
    Skip,
    Table,
    fail_fast,
    retry_all,
    retry_transient,
    skip_on_error,
    udf,
)


class OwnError(Exception):
    """An error of a user's own class."""

    def __init__(self, row: int, why: str) -> None:  # it is not made again of its text
        super().__init__(f"{why} {row}")


ERRORS: Final[Mapping[str, type[Exception]]] = {
    "ValueError": ValueError,
    "KeyError": KeyError,
    "ZeroDivisionError": ZeroDivisionError,
    "OwnError": OwnError,
    "MemoryError": MemoryError,
    "ConnectionError": ConnectionError,
}
PASSING: Final = "ConnectionError"
"""The error that passes after some calls."""


class Failing(NamedTuple):
    """A row for which a function fails: with which error, and how often (None: always)."""

    kind: str
    times: int | None = None


def raised(row: int, kind: str) -> Exception:
    """The error of a row."""
    return OwnError(row, "own") if kind == "OwnError" else ERRORS[kind](f"{kind} of {row}")


def failing_function(
    root: Path, rows: Mapping[int, Failing], policies: Sequence[Policy], *, is_array: bool, version: str = "1"
) -> UDF:
    """A function that doubles, fails for some rows, and notes its calls."""

    def of_row(a: int) -> int:
        with (root / "calls").open("a") as file:
            file.write(f"{a}\n")
        failing = rows.get(a)
        if failing is not None:
            before = (root / "calls").read_text().split().count(str(a))
            if failing.times is None or before <= failing.times:
                raise raised(a, failing.kind)
        return a * 2

    def of_array(a: pa.Array) -> pa.Array:
        return pa.array([of_row(one) for one in a.to_pylist()], pa.int64())

    function: Any = of_array if is_array else of_row
    function.__annotations__ = {"a": pa.Array if is_array else int, "return": pa.Array if is_array else int}
    return udf(pa.int64(), name="fails", version=version, on_error=list(policies))(function)


class Outcome(NamedTuple):
    """What has to come of a case: the rows that are null, with the place of their policy, or errors that may end it."""

    skipped: Mapping[int, int]
    ends_with: frozenset[str] = frozenset()


def expected(rows: Mapping[int, Failing], policies: Sequence[Policy], total: int) -> Outcome:
    """What has to come of rows that fail, told apart from how batches are halved."""
    skipped: dict[int, int] = {}
    ends: set[str] = set()
    for row, failing in rows.items():
        at = next((at for at, policy in enumerate(policies) if policy.matches(raised(row, failing.kind))), None)
        policy = None if at is None else policies[at]
        if isinstance(policy, Skip) and failing.times is None and at is not None:
            skipped[row] = at
        elif not (isinstance(policy, Retry) and failing.times is not None and failing.times < policy.max_attempts):
            ends.add(failing.kind)
    for at, count in Counter(skipped.values()).items():
        policy = policies[at]
        if isinstance(policy, Skip) and policy.exceeded(count, total):
            ends.add("SkipThresholdExceededError")
    return Outcome(skipped, frozenset(ends))


def made_policies(pick: random.Random) -> list[Policy]:
    """Policies: the helpers' or others."""
    if pick.random() < 0.3:
        helpers = [retry_transient(backoff="fixed"), retry_all(2, "fixed"), skip_on_error(), fail_fast(), []]
        helpers += [skip_on_error(max_skip_count=2), skip_on_error(max_skip_fraction=0.2)]
        return [*pick.choice(helpers), *pick.choice([[], [], skip_on_error()])]
    found: list[Policy] = []
    for _ in range(pick.randint(1, 3)):
        kinds = [ERRORS[name] for name in pick.sample([name for name in ERRORS if name != PASSING], pick.randint(0, 2))]
        limits: list[dict[str, Any]] = [
            {},
            {},
            {"max_skip_count": 3},
            {"max_skip_fraction": 0.3},
            {"match": "[02468]$"},
        ]
        found.append(
            pick.choice(
                [
                    Skip(*kinds, **pick.choice(limits)),
                    Skip(*kinds, **pick.choice(limits)),
                    Fail(*kinds) if kinds else Skip(),
                    Retry(ConnectionError, max_attempts=3, backoff="fixed"),
                ]
            )
        )
    return found


class Case:
    """One table and its function."""

    def __init__(self, seed: int, root: Path, executor: str) -> None:
        pick = random.Random(seed)
        self.root, self.total = root, pick.randint(1, 40)
        place = root / "t.lance"
        rows = pa.table({"a": pa.array(range(self.total))})
        lance.write_dataset(rows, place, max_rows_per_file=pick.choice([5, 12, 100]), enable_stable_row_ids=True)
        self.table = Table(str(place), executor=executor)
        self.policies = made_policies(pick)
        kinds = pick.sample(list(ERRORS), pick.randint(1, 3))
        failing = pick.sample(range(self.total), min(self.total, pick.choice([0, 1, 2, 5, 9])))
        self.rows = {row: Failing(pick.choice(kinds)) for row in failing}
        if self.rows and pick.random() < 0.5:  # one row that passes later; of more, tries of a batch would add up
            self.rows = {row: one for row, one in self.rows.items() if one.kind != PASSING}
            row = pick.choice(failing)
            first = next((one for one in self.policies if one.matches(raised(row, PASSING))), None)
            # under another policy than one that tries again, it passes or not as batches are halved
            self.rows[row] = Failing(PASSING, pick.randint(1, 2) if isinstance(first, Retry) else None)
        self.is_array = pick.random() < 0.3
        self.options: dict[str, Any] = {"checkpoint_size": pick.choice([1, 4, 50]), "task_size": pick.choice([None, 7])}
        self.options["commit_granularity"] = pick.choice([None, 1, 64])
        self.outcome = expected(self.rows, self.policies, self.total)
        self.wrong: list[str] = []

    def function(self, rows: Mapping[int, Failing]) -> UDF:
        """The function, failing for some rows."""
        return failing_function(self.root, rows, self.policies, is_array=self.is_array)

    def check(self, what: str, is_: object, should: object) -> None:
        """Note what is not as it should be."""
        if is_ != should:
            self.wrong.append(f"{what} is {is_}, not {should}")

    def run(self) -> list[str]:
        """Fill the column; gives what is wrong."""
        self.table.add_columns({"c": self.function(self.rows)})
        try:
            result = self.table.backfill("c", job_id="one", **self.options)
        except JobFailedError as error:
            self.failed(error)
        else:
            self.filled(result)
        head = f"{self.rows} under {self.policies}, {self.total} rows, {self.options}, array: {self.is_array}"
        return [f"{text}; {head}" for text in self.wrong]

    def values(self) -> dict[int, int | None]:
        """The column, by the rows' numbers."""
        rows = self.table.to_arrow()
        return dict(zip(rows["a"].to_pylist(), rows["c"].to_pylist(), strict=True))

    def addresses(self, rows: Sequence[int]) -> list[int]:
        """The addresses of rows."""
        found = lance.dataset(self.table.uri).to_table(columns=["a"], with_row_address=True)
        known = dict(zip(found["a"].to_pylist(), found["_rowaddr"].to_pylist(), strict=True))
        return sorted(known[row] for row in rows)

    def filled(self, result: BackfillJobResult) -> None:
        """Check what is told of a job that is done."""
        skipped = sorted(self.outcome.skipped)
        self.check(
            "what ends it", "nothing", "one of " + repr(self.outcome.ends_with) if self.outcome.ends_with else "nothing"
        )
        self.check("the column", self.values(), {a: None if a in skipped else 2 * a for a in range(self.total)})
        counts = result.columns["c"]
        self.check(
            "the result", (counts.rows_processed, counts.rows_skipped), (self.total - len(skipped), len(skipped))
        )
        (job,) = self.table.jobs()
        metrics = {metric.name: metric.n for metric in job.metrics}
        told = (job.status, metrics["rows_processed"], metrics["rows_skipped_on_error"])
        self.check("the job", told, ("DONE", self.total - len(skipped), len(skipped)))
        self.check("addresses", self.table.get_failed_row_addresses("one", "c"), self.addresses(skipped))
        errors = [(one.row_address, one.error_type, one.error_message) for one in self.table.get_errors("one")]
        wanted = [
            (self.addresses([row])[0], self.rows[row].kind, str(raised(row, self.rows[row].kind))) for row in skipped
        ]
        self.check("the errors", sorted(errors), sorted(wanted))
        for kind in {self.rows[row].kind for row in skipped}:
            count = sum(self.rows[row].kind == kind for row in skipped)
            self.check(f"errors of {kind}", len(self.table.get_errors(error_type=kind)), count)
        if skipped:
            self.try_again(skipped)

    def try_again(self, skipped: Sequence[int]) -> None:
        """Call a function that was mended for the rows that failed."""
        (self.root / "calls").unlink()
        where = f"_rowaddr IN ({','.join(map(str, self.table.get_failed_row_addresses('one', 'c')))})"
        result = self.table.backfill("c", udf=self.function({}), where=where)
        calls = sorted(map(int, (self.root / "calls").read_text().split()))
        self.check("calls of the second time", calls, sorted(skipped))
        self.check("its result", result.columns["c"].rows_processed, len(skipped))
        self.check("the column then", self.values(), {a: 2 * a for a in range(self.total)})
        self.check("work that is left", self.table.plan_backfill("c", udf=self.function({})).has_work, False)

    def failed(self, error: JobFailedError) -> None:
        """Check what is told of a job that has failed."""
        cause = type(error.__cause__).__name__
        if cause not in self.outcome.ends_with:
            self.wrong.append(f"it ended with {cause}, not with one of {set(self.outcome.ends_with)}: {error}")
        (job,) = self.table.jobs()
        self.check("the job", (job.status, job.error), ("FAILED", f"{cause}: {error.__cause__}"))
        for a, value in self.values().items():  # fragments that were committed before stay
            if value is not None:
                self.check(f"row {a}", (value, a in self.outcome.skipped), (2 * a, False))
        errors = self.table.get_errors("one")
        if isinstance(error.__cause__, SkipThresholdExceededError):
            told = {one.row_address for one in errors}
            if not told or not told <= {*self.addresses([*self.outcome.skipped])}:
                self.wrong.append(f"too many rows were skipped, and errors tell of those at {told}")
        elif cause not in {one.error_type for one in errors if one.row_address is None}:
            self.wrong.append(f"it ended with {cause}, and errors tell of {[one.error_type for one in errors]}")


def compared(seed: int, executor: str = "inline") -> list[str]:
    """What is wrong with one case."""
    with tempfile.TemporaryDirectory(prefix="chunkmill-failing-") as root, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [f"seed {seed}: {text}" for text in Case(seed, Path(root), executor).run()]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--executor", default="inline")
    options = parser.parse_args(arguments)
    failed = 0
    for seed in range(options.seed, options.seed + options.count):
        wrong = compared(seed, options.executor)
        failed += bool(wrong)
        for text in wrong:
            print(text, flush=True)
    print(f"{options.count - failed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    os.environ.setdefault("CHUNKMILL_EXECUTOR", "inline")
    sys.exit(main())
