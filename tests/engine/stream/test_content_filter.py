"""Entity path expressions: the table of the format's documentation, and the builder."""

from __future__ import annotations

import pickle

import pytest
from chunkmill.engine.stream import ContentFilter
from chunkmill.engine.stream.operators import content_filter

PATHS = ["/", "/world", "/world/car", "/world/car/wheel", "/worldly", r"/a\ b", "/__properties", "/__properties/sub"]
PLAIN = PATHS[:6]


@pytest.mark.parametrize(
    ("content", "matched"),
    [
        ("/world", ["/world"]),
        ("/world/**", ["/world", "/world/car", "/world/car/wheel"]),
        ("/**", PLAIN),
        ("/world/** -/world/car/**", ["/world"]),
        ("-/world/car/** /world/**", ["/world"]),
        ("+ /world/** - /world/car", ["/world", "/world/car/wheel"]),
        ("/** - /world/** + /world/car", ["/", "/world/car", "/worldly", r"/a\ b"]),
        (["/world/**", "-/world/**"], []),
        (["-/world/**", "/world/**"], ["/world", "/world/car", "/world/car/wheel"]),
        ("/__properties/**", ["/__properties", "/__properties/sub"]),
        ("/__properties", ["/__properties"]),
        ("/** /__properties/**", PATHS),
        ("/", ["/"]),
        (r"/a\ b", [r"/a\ b"]),
        ("+\n/world", ["/", "/world"]),
        ("world/**", ["/world", "/world/car", "/world/car/wheel"]),
        ("//world//car", ["/world/car"]),
        ("**", []),
        ("/*", []),
        ("/world/*", []),
        ("-/world", []),
        ("", []),
        ([], []),
    ],
)
def test_table(content: str | list[str], matched: list[str]) -> None:
    chosen = content_filter(content)
    assert [p for p in PATHS if chosen.matches(p)] == matched


def test_builder() -> None:
    built = ContentFilter.everything().exclude("/foo").include("/foo/bar/**")
    assert built.to_exprs() == ["/**", "-/foo", "/foo/bar/**"]
    assert built.matches("/foo/bar/x") and not built.matches("/foo") and not built.matches("/__properties")
    assert built.include_properties().matches("/__properties/x")
    assert not ContentFilter.nothing().matches("/")
    assert pickle.loads(pickle.dumps(built)) == built
    with pytest.raises(ValueError, match="must start with '/', got: 'foo'"):
        built.include("foo")


def test_a_filter_must_be_text() -> None:
    with pytest.raises(TypeError, match="'int' object is not iterable"):
        content_filter(5)
    with pytest.raises(TypeError, match="argument 'content': 'int' object is not an instance of 'str'"):
        content_filter(["/a", 5])  # type: ignore[list-item]


def test_a_subtree_is_appended_once() -> None:
    built = (
        ContentFilter.nothing().include("/a", subtree=True).exclude("/a/b/**", subtree=True).include("/", subtree=True)
    )
    assert built.to_exprs() == ["/a/**", "-/a/b/**", "/**"]
    assert built.exclude("/a", subtree=False).to_exprs()[-1] == "-/a"
    with pytest.raises(TypeError, match="argument 'path'"):
        built.include(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must start with '/'"):
        built.exclude("a", subtree=True)
