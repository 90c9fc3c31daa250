"""The page of error codes has each code once, with messages that chunkmill gives."""

from __future__ import annotations

import ast
import pickle
import re
from collections.abc import Iterator

import chunkmill
import pytest
from chunkmill.engine.errors import ERRORS, ChunkmillError, ReadError, SelectorSyntaxError, WriteError, error_from_dict
from places import REPOSITORY

PAGE = (REPOSITORY / "docs" / "errors.md").read_text(encoding="utf-8")
SECTIONS = re.findall(r"^## (CM\d{3}): (\w+) \{#(cm\d{3})\}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)


def below(kind: type[ChunkmillError]) -> Iterator[type[ChunkmillError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from below(each)


def made(kind: type[ChunkmillError], message: str) -> ChunkmillError:
    more = {"query": ".a", "position": 1} if kind is SelectorSyntaxError else {}
    return kind(message, path="drive.mcap", **more)


def test_each_class_has_a_code_and_a_section() -> None:
    assert [(number, name) for number, name, *_ in SECTIONS] == [(kind.number, kind.__name__) for kind in ERRORS]
    assert [anchor for _, _, anchor, _ in SECTIONS] == [kind.number.lower() for kind in ERRORS]
    assert len({kind.number for kind in ERRORS}) == len({kind.code for kind in ERRORS}) == len(ERRORS)
    named = {
        kind for kind in below(ChunkmillError) if "number" in vars(kind) and kind.__module__ == ReadError.__module__
    }
    assert named == set(ERRORS)
    assert len(PAGE.split()) <= 1_300


def test_messages_of_the_page_are_those_of_the_source() -> None:
    folders = [REPOSITORY / name for name in ("engine", "readers", "lenses")]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for folder in folders for path in folder.rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    texts = "\n".join(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    for number, _, _, section in SECTIONS:
        (line,) = re.findall(r"^- Message: (.*)$", section, re.MULTILINE)
        parts = [part.strip(" '") for shown in re.findall(r"`(.*?)`", line) for part in shown.split("…")]
        assert any(parts), number
        assert [part for part in parts if part not in texts] == [], number
        assert re.search(r"^- Do: ", section, re.MULTILINE), number


@pytest.mark.parametrize("kind", ERRORS)
def test_the_code_is_at_the_head_once(kind: type[ChunkmillError]) -> None:
    inner = made(kind, "it is cut")
    assert str(inner).startswith(f"{kind.number}: ")
    outer = WriteError(f"it failed: {inner}", hint="Again.")
    assert re.findall(r"CM\d{3}", str(outer)) == ["CM201"]
    assert "it is cut" in str(outer)
    data = inner.to_dict()
    assert (data["number"], data["code"]) == (kind.number, kind.code)
    assert "CM" not in data["message"]
    for again in (error_from_dict(data), pickle.loads(pickle.dumps(inner))):
        assert (type(again), str(again)) == (kind, str(inner))
    del data["number"]  # as older releases wrote it
    assert str(error_from_dict(data)) == str(inner)


def test_a_class_of_the_users_has_the_code_of_its_base() -> None:
    class Mine(chunkmill.ReadError):
        pass

    assert str(Mine("it is cut")) == "CM101: it is cut."


def test_other_words_stay() -> None:
    error = ReadError("ACM101: CM999: and CM101 stay", path="CM101: odd.mcap")
    assert str(error) == "CM101: CM101: odd.mcap: ACM101: CM999: and CM101 stay."
