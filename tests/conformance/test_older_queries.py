"""Queries that Rerun 0.27 and 0.28 answered: the same calls, as they were written down, over the same recordings."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.catalog import CatalogClient, v0_27
from chunkmill.engine.query import QuerySemantics
from datafusion import col
from query_oracle import GOLDEN, canonical, plain

pytestmark = [pytest.mark.wide, pytest.mark.skipif(not GOLDEN.exists(), reason="the recorded queries are not at hand")]

CASES = {
    "g1": "g01_rows",
    "g3": "g03_static",
    "g5": "g05_using_index_values",
    "g5b": "g05b_uiv_times",
    "g6": "g06_semantically_empty",
    "g7": "g07_clear",
    "g7b": "g07b_clear_order",
    "g9": "g09_multi_timeline",
}
LOCAL = {"local clear order": "g7b", "local clear order fill": "g7b", "local uiv+filteridx": "g1"}
"""The recording that a call of a view without a catalog is about, where it is not g7."""

SEMANTICS = replace(QuerySemantics.of("contract"), cleared_values_return=True)
"""The rules that both releases have."""

OTHER_ANSWERS: dict[tuple[str, str], Any] = {
    ("0.27.3", "clear b"): "the row of a clear above the entity, which servers forget",
    ("0.27.3", "contents multi"): "the row of a clear above the entity, which servers forget",
    ("0.27.3", "dict contents2"): "the row of a clear above the entity, which servers forget",
    ("0.27.3", "partition none"): "NotFoundError, not DataFusion's words for it",
    ("0.28.2", "clear b"): "the row of a clear above the entity, which servers forget",
    ("0.28.2", "clear b fill"): "the row of a clear above the entity, which servers forget",
    ("0.28.2", "notnull fill"): "a filter of the frame is of what the frame holds: filled values are values",
    ("0.28.2", "two notnull"): "both filters count",
    ("0.28.2", "uiv dict"): "index values of each segment are taken",
    ("0.28.2", "unknown index"): "ValueError, as in 0.33",
}
"""Calls that are answered differently on purpose; docs/differences.md has each."""


WITHOUT = "Invalid component type 'nope': "
"""What Rerun says before the words of an error that are ours, too."""


def calls(release: str) -> list[Any]:
    path = GOLDEN / f"variants_{release}.json"
    found = json.loads(path.read_text()) if path.exists() else []
    return [pytest.param(release, call, id=f"{release} {call['label']}") for call in found]


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The dataset of a case, by the names of a release."""
    lake = tmp_path_factory.mktemp("lake")

    @functools.cache
    def dataset_of(release: str, name: str) -> Any:
        client = CatalogClient(lake, semantics=SEMANTICS)
        if CASES[name] not in client.dataset_names():
            recordings = json.loads((GOLDEN / f"{CASES[name]}.json").read_text())["recordings"]
            client.create_dataset(CASES[name]).register(
                [str(GOLDEN / recording["rrd"]) for recording in recordings],
                layer_name=[recording["layer"] for recording in recordings],
                executor="inline",
            ).wait()
        if release == "0.28.2":
            return client.get_dataset(CASES[name])
        return v0_27.CatalogClient(lake, semantics=SEMANTICS).get_dataset(name=CASES[name])

    return dataset_of


def view(dataset: Any, contents: Any = "/**", i: str | None = "frame", **options: Any) -> Any:
    return dataset.dataframe_query_view(index=i, contents=contents, **options)


class LocalRecording:
    """A recording without a catalog, as 0.27 had one, over a dataset of one partition."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def view(self, index: str, contents: str) -> Any:
        return LocalView(view(self.dataset, contents, index))


class LocalView:
    def __init__(self, found: Any) -> None:
        self.found = found

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: LocalView(getattr(self.found, name)(*arguments))

    def select(self) -> Any:
        return self.found.to_arrow_reader()


def answered(lakes: Any, release: str, call: dict[str, Any]) -> pa.Table:
    """The answer to a call, of which the text is known."""
    scope = {name: lakes(release, name) for name in CASES if f"{name}." in call["src"] or f"({name}" in call["src"]}
    if "(r." in call["src"] or ":r." in call["src"]:
        scope["r"] = LocalRecording(lakes(release, LOCAL.get(call["label"], "g7")))
    asked: list[Any] = []
    scope |= {"V": view, "np": np, "col": col, "U": np.array([5, 10, 15, 30, 35, 150, 999]), "S": None}
    eval(call["src"], scope | {"show": lambda label, ask, *_: asked.append(ask)})
    found = asked[0]()
    return found if isinstance(found, pa.Table) else found.to_arrow_table()


@pytest.mark.parametrize(("release", "call"), [*calls("0.27.3"), *calls("0.28.2")])
def test_a_recorded_call_is_answered_as_it_was(lakes: Any, release: str, call: dict[str, Any]) -> None:
    differs = (release, call["label"]) in OTHER_ANSWERS
    if "error_type" in call and not differs:
        kind = {"ValueError": ValueError, "TypeError": TypeError}[call["error_type"]]
        said = call["error"].rstrip(".").removeprefix(WITHOUT)
        with pytest.raises(kind, match=re.escape(said)):
            answered(lakes, release, call)
        return
    if call["label"] in ("partition none", "unknown index") and differs:
        with pytest.raises((LookupError, ValueError)):
            answered(lakes, release, call)
        return
    found = answered(lakes, release, call)
    rows = plain(found)
    if differs:
        assert rows and canonical(rows) != canonical(call.get("rows", []))
        return
    shown = [name for name in found.column_names if name in call["columns"]]
    assert canonical([{name: row[name] for name in shown} for row in rows]) == canonical(call["rows"])
    assert set(found.column_names) - set(call["columns"]) <= {"rerun_partition_id"}, "a recording has no partition"
    assert set(call["columns"]) <= set(found.column_names)
