"""The dump of public names knows all that the reference shows, and a comparison says what became of a name."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import TypedDict, Unpack

import pytest
from public_names import FACES, compared, described, dump_faces, made_dump, members, names_of, shown_difference

DOCS = Path(__file__).resolve().parents[2] / "docs"


class Options(TypedDict, total=False):
    """Arguments that several methods take."""

    size: int
    name: str


def written_out(place: str, *, name: str = "a", size: int = 1) -> int:
    """Return something."""
    return len(place + name) + size


def taken_together(place: str, **options: Unpack[Options]) -> int:
    """Return something."""
    return written_out(place, **options)


def with_less(place: str, *, size: int = 1) -> int:
    """Return something."""
    return len(place) + size


def with_another_default(place: str, *, name: str = "b", size: int = 1) -> int:
    """Return something else."""
    return len(place + name) + size


def said_of(before: object, after: object) -> set[str]:
    lines = compared({"it": described(before)}, {"it": described(after)})
    return {kind for kind, texts in lines.items() if texts}


def is_in_a_face(name: str) -> bool:
    """Return True if a face has the name, or a class of one has it as a member."""
    face = max((f for f in FACES if name.startswith(f"{f}.")), key=len)
    first, *rest = name.removeprefix(f"{face}.").split(".")
    module = importlib.import_module(face)
    return first in names_of(module) and (not rest or rest[0] in dict(members(getattr(module, first))))


def test_the_reference_shows_names_of_faces_alone() -> None:
    shown = {
        name
        for page in (DOCS / "api").glob("*.md")
        for name in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)
    }
    assert len(shown) > 100
    assert {name for name in shown - set(FACES) if not is_in_a_face(name)} == set()


def test_what_is_imported_in_the_guide_is_in_a_face() -> None:
    guide = "\n".join(page.read_text() for page in (*DOCS.glob("*.md"), DOCS.parent / "README.md"))
    imported = re.findall(r"^from (chunkmill[\w.]*) import ([\w, ]+)$", guide, re.MULTILINE)
    names = {(module, name.strip().partition(" ")[0]) for module, names in imported for name in names.split(",")}
    dump = dump_faces(False)
    assert [(m, n) for m, n in names if m in FACES and f"{m}: {n}" not in dump and f"{m}.{n}" not in FACES] == []
    assert len(names) > 40


@pytest.mark.parametrize(
    ("after", "kinds"),
    [
        (written_out, set()),
        (taken_together, set()),
        (with_less, {"changed"}),
        (with_another_default, {"changed"}),
        (int, {"changed"}),
    ],
)
def test_what_became_of_a_function(after: object, kinds: set[str]) -> None:
    assert said_of(written_out, after) == kinds


def test_a_name_that_goes_and_one_that_comes() -> None:
    lines = compared({"a": described(int), "b": described(int)}, {"b": described(int), "c": described(int)})
    assert (lines["removed"], lines["added"], lines["changed"]) == (["a"], ["c"], [])


def test_a_difference_is_shown_without_what_stayed() -> None:
    assert shown_difference(described(written_out), described(with_another_default)) == (
        "- *, name: str = 'a'; + *, name: str = 'b'; 'Return something.' -> 'Return something else.'"
    )


def test_a_dump_has_every_kind_of_name_and_is_the_same_each_time() -> None:
    pytest.importorskip("grpc")
    dump = made_dump(False)
    for key in (
        "chunkmill: McapReader",
        "class Table: backfill",
        "class v0_27.DatasetEntry: name",
        "command chunkmill convert: --executor",
        "call /rerun.cloud.v1alpha1.RerunCloudService/QueryDataset",
        "message rerun.cloud.v1alpha1.QueryDatasetRequest",
        "suffix .mcap",
        "option topics",
        "data source pyspark_chunkmill_mcap",
        "variable CHUNKMILL_FORMATS",
    ):
        assert key in dump
    assert compared(dump, made_dump(False)) == {k: [] for k in ("removed", "changed", "retyped", "reworded", "added")}
