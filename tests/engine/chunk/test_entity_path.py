"""Entity paths: the forgiving parser and the canonical text."""

from __future__ import annotations

import pytest
from chunkmill.engine.chunk import parse_entity_path
from chunkmill.engine.chunk.data import join_parts, split_parts
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("given_text", "canonical"),
    [
        ("", "/"),
        ("/", "/"),
        ("world//car/", "/world/car"),
        ("a b", r"/a\ b"),
        ("/a/[#3]", r"/a/\[\#3\]"),
        ("/a:b", r"/a\:b"),
        ("/ö/日本", "/ö/日本"),
        ("$origin/x", r"/\$origin/x"),
        ("a\nb", r"/a\nb"),
        ("a\x01b", r"/a\u{0001}b"),
        ("😀", r"/\u{1F600}"),
        (r"a\u{41}b", "/aAb"),
        (r"a\qb", "/aqb"),
        ("a\\", r"/a\\"),
    ],
)
def test_canonical_text(given_text: str, canonical: str) -> None:
    assert parse_entity_path(given_text) == canonical


@given(st.lists(st.text(min_size=1), max_size=5))
def test_parts_survive_the_text(parts: list[str]) -> None:
    assert split_parts(join_parts(parts)) == parts


@given(st.text())
def test_parsing_is_idempotent(text: str) -> None:
    once = parse_entity_path(text)
    assert parse_entity_path(once) == once
