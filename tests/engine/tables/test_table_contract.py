"""The page of computed tables: its methods, parameters and defaults are there, and the types that it names."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
from chunkmill.engine import errors, tables
from places import SHARED

PAGE = SHARED / "reference" / "computed-table-api.txt"
pytestmark = [pytest.mark.wide, pytest.mark.skipif(not PAGE.exists(), reason="the page is not at hand")]

VALUES = {"1024 * 1024 * 1024": str(2**30), "VECTOR_COLUMN_NAME": "'vector'"}
"""Defaults that the page gives by other words."""

SIGNATURE = re.compile(
    r"^(?P<name>\w+)\(\n(?P<body>.*?)\n\)(?: -> [^\n]*(?:\n\s*\|[^\n]*)*)?$", re.DOTALL | re.MULTILINE
)
PARAMETER = re.compile(r"(?P<star>\*{0,2})(?P<name>\w+)?(?::(?P<type>.*?))?(?:= *(?P<default>.+))?$", re.DOTALL)


def signatures() -> dict[str, list[tuple[str, str | None]]]:
    """The methods of the page's table, and their parameters with their defaults."""
    text = PAGE.read_text().partition("\ngeneva.table.TableReference\n")[0]
    found = {}
    for match in SIGNATURE.finditer(text):
        body, depth, parts = match["body"], 0, [""]
        for letter in body:
            depth += (letter in "[({") - (letter in "])}")
            if letter == "," and not depth:
                parts.append("")
            else:
                parts[-1] += letter
        parameters = []
        for part in (one.strip() for one in parts):
            if part and part != "*":
                told = PARAMETER.match(" ".join(part.split()))
                assert told is not None
                parameters.append((told["star"] + told["name"], told["default"]))
        found[match["name"]] = parameters
    return found


def test_the_page_has_methods() -> None:
    assert len(signatures()) > 12


@pytest.mark.parametrize("name", sorted(signatures()) if PAGE.exists() else [])
def test_a_method_takes_what_the_page_says(name: str) -> None:
    method = getattr(tables.Table, name, None)
    ours: dict[str, Any] = dict(inspect.signature(method).parameters)  # type: ignore[arg-type]
    for parameter, default in signatures()[name]:
        stars, plain = parameter.count("*"), parameter.lstrip("*")
        if stars:
            assert any(one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL) for one in ours.values())
            continue
        assert plain in ours, f"{name}() has no {plain}"
        given = ours[plain].default
        wanted = default and VALUES.get(default, default.replace('"', "'"))
        assert (None if given is inspect.Parameter.empty else repr(given)) == wanted


def test_methods_whose_signature_the_page_leaves_out() -> None:
    for name in ("alter_columns", "get_failed_row_addresses"):
        assert callable(getattr(tables.Table, name))
    assert list(inspect.signature(tables.Table.get_failed_row_addresses).parameters)[1:] == ["job_id", "column_name"]


def test_types_that_the_page_names() -> None:
    for name in (
        "udf",
        "UDF",
        "Columns",
        "UnpackedUDF",
        "Job",
        "JobFuture",
        "BackfillJobResult",
        "BackfillPlan",
        "NativeTable",
        "RefreshJobResult",
        "RefreshPlan",
        "TableReference",
        "ErrorRecord",
    ):
        assert name in tables.__all__
    assert issubclass(errors.UnsupportedCallError, NotImplementedError)
    assert issubclass(errors.ResourcesUnavailableError, errors.ChunkmillError)
