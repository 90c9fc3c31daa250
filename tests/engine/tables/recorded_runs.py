"""Runs of calls on a computed table, each compared with what was recorded of it."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import lance
import pyarrow as pa
from chunkmill.engine.tables import BackfillJobResult, Table

VERSIONS: Final = "versions of a table"
COUNTS: Final = "counts and times of a result"


class Told(NamedTuple):
    """Our answer to a call, what of the recorded one it is compared with, and the rows of the page that say why."""

    ours: Any
    recorded: Any
    rows: tuple[str, ...] = ()


def read(text: str) -> Any:
    """What a text of Python's values means; of the call of a class its arguments."""
    return _value(ast.parse(text, mode="eval").body)


def _value(node: ast.AST) -> Any:
    if isinstance(node, ast.Call):
        return {one.arg: _value(one.value) for one in node.keywords}
    if isinstance(node, ast.Tuple):
        return tuple(map(_value, node.elts))
    if isinstance(node, ast.Dict):
        return {_value(key): _value(value) for key, value in zip(node.keys, node.values, strict=True) if key}
    return ast.literal_eval(node)


def raised(call: Callable[[], object]) -> Exception:
    """The error of a call that is to fail."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 (whatever it is, is compared)
        return error
    raise AssertionError("it did not fail")


def without(said: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in said.items() if name not in names}


class Run:
    """A table, and the calls of a run, each with its name in the recording."""

    def __init__(self, folder: Path, rows: int, per_file: int) -> None:
        self.folder = folder
        data = pa.table({"a": range(rows), "b": range(rows)})
        lance.write_dataset(data, folder / "t.lance", max_rows_per_file=per_file, enable_stable_row_ids=True)
        self.table = Table(str(folder / "t.lance"))
        self.results: dict[str, BackfillJobResult] = {}
        self.steps: list[tuple[str, Callable[[Any], Told]]] = []

    def values(self, column: str) -> list[Any]:
        found: list[Any] = self.table.to_arrow()[column].to_pylist()
        return found

    # --- what is called

    def planned(self, said: str, column: str, **options: Any) -> Told:
        plan = dataclasses.asdict(self.table.plan_backfill(column, **options))
        return Told(without(plan, "version", "stale_rows"), without(read(said), "version"), (VERSIONS,))

    def filled(self, said: str, column: str, rows: int, skipped: int = 0, **options: Any) -> Told:
        result = self.table.backfill(column, **options)
        self.results[column] = result
        ours, theirs = dataclasses.asdict(result), read(said)
        (one,) = ours.pop("columns").values()
        (other,) = theirs.pop("columns").values()
        assert (
            (one["rows_processed"], one["rows_skipped"]) == (rows, skipped) and one["udf_name"] and one["udf_version"]
        )
        assert ours["launched_at"] <= ours["completed_at"] and len(ours["job_id"]) == 32
        told = ("job_id", "launched_at", "completed_at")
        return Told(
            (without(ours, *told), column, one["input_columns"]),
            (without(theirs, *told), next(iter(read(said)["columns"])), other["input_columns"]),
            (COUNTS,),
        )

    def refused(self, said: Mapping[str, str], call: Callable[[], object], *rows: str) -> Told:
        """A call that fails: as it did, or with what is said of the class and of the text where that was of a job."""
        error = raised(call)
        kind, text = said["error_type"], said["error"]
        if kind.startswith("RayTaskError"):  # it wraps what was raised; of a function the recording has no more
            inner = re.search(r"builtins\.(\w+): (.*)", text, re.DOTALL)
            if inner is None:
                return Told(isinstance(error, RuntimeError), True, rows)
            kind, text = inner[1], inner[2]
        if rows:
            return Told(type(error).__name__, type(error).__name__, rows)
        kinds = {one.__name__ for one in type(error).__mro__}
        ours = str(error)
        return (
            Told((kind in kinds, text in ours), (True, True))
            if text in ours
            else Told((kind in kinds, ours), (True, text))
        )

    # --- the calls

    def say(self, name: str, call: Callable[[Any], Told]) -> None:
        self.steps.append((name, call))

    def rows(self, column: str, *, last: int | None = None) -> None:
        def told(said: str) -> Told:
            values = self.table.to_arrow().select(["a", column]).to_pylist()[-last:] if last else self.values(column)
            return Told(values, read(said))

        self.say("rows", told)

    def version(self, *, is_same: bool = False) -> None:
        before = [0]

        def told(_: str) -> Told:
            versions = lance.dataset(self.table.uri).versions()
            is_as_said = self.table.version == self.noted if is_same else self.table.version > self.noted
            return Told((is_as_said, len(versions) > before[0]), (True, True), (VERSIONS,))

        self.say("v", told)

    noted = 0
