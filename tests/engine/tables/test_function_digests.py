"""Digests of functions: they change with what a function does, and with nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from chunkmill.engine.tables import udf
from chunkmill.engine.tables.digests import digest_of

SCALE = 3
NAMES = ["a", "b"]


def doubled(a: int) -> int:
    return a * 2


def in_module(folder: Path, text: str) -> Callable[..., Any]:
    """The function ``f`` of a module with this text."""
    namespace: dict[str, Any] = {"__name__": "m"}
    path = folder / f"m{len(list(folder.iterdir()))}.py"
    path.write_text(text)
    exec(compile(text, str(path), "exec"), namespace)
    made: Callable[..., Any] = namespace["f"]
    return made


def test_what_a_function_does_is_in_its_digest(tmp_path: Path) -> None:
    texts = [
        "def f(a):\n    return a * 2\n",
        "def f(a):\n    return a * 3\n",
        "def f(a, b=1):\n    return a * b\n",
        "def f(a, b=2):\n    return a * b\n",
        "def f(a, *, b=2):\n    return a * b\n",
        "K = 1\ndef f(a):\n    return a * K\n",
        "K = 2\ndef f(a):\n    return a * K\n",
        "K = [2]\ndef f(a):\n    return a * K[0]\n",
        "K = [3]\ndef f(a):\n    return a * K[0]\n",
        "K = {'x': (1, {2})}\ndef f(a):\n    return [K for _ in a]\n",
        "K = {'x': (1, {3})}\ndef f(a):\n    return [K for _ in a]\n",
        "def g(k):\n    def f(a):\n        return a * k\n    return f\nf = g(1)\n",
        "def g(k):\n    def f(a):\n        return a * k\n    return f\nf = g(2)\n",
        "class f:\n    def __call__(self, a):\n        return a\n",
        "class f:\n    by = 2\n    def __call__(self, a):\n        return a\n",
        "K = 1\nclass f:\n    @property\n    def by(self): return K\n    def __call__(self, a):\n        return a\n",
        "K = 2\nclass f:\n    @property\n    def by(self): return K\n    def __call__(self, a):\n        return a\n",
    ]
    digests = [digest_of(in_module(tmp_path, text)) for text in texts]
    assert len(set(digests)) == len(texts)
    assert [digest_of(in_module(tmp_path, text)) for text in texts] == digests


def test_where_a_function_stands_is_not_in_its_digest(tmp_path: Path) -> None:
    plain = digest_of(in_module(tmp_path, "def f(a):\n    return a * 2\n"))
    for text in (
        "import os\n\nK = 5\n\n\ndef f(a):\n    return a * 2\n",
        "def same(g):\n    return g\n@same\n@same\ndef f(a):\n    return a * 2   \n",
        "if True:\n    def f(a):\n        return a * 2\n",
        "def f(a):\n    return a * 2\n# the end\n",
    ):
        assert digest_of(in_module(tmp_path, text)) == plain


def test_options_are_not_in_the_digest_but_the_type_is() -> None:
    assert udf(doubled).digest == udf(name="n", version="1", num_cpus=4)(doubled).digest
    assert udf(doubled).digest == udf(pa.int64())(doubled).digest != udf(pa.int8())(doubled).digest
    assert udf(version="1")(doubled).version == "1"


def test_lambdas_of_one_line_are_told_apart() -> None:
    one, two, same = [lambda a: a + 1, lambda a: a + 2, lambda a: a + 1]
    assert digest_of(one) != digest_of(two)
    assert digest_of(one) == digest_of(same)
    assert digest_of(lambda a: a + SCALE) != digest_of(lambda a: a + len(NAMES))


def test_what_a_decorator_does_is_in_the_digest(tmp_path: Path) -> None:
    def wrapped(text: str) -> Callable[..., Any]:
        return in_module(
            tmp_path,
            "import functools\ndef by(g):\n    @functools.wraps(g)\n    def inner(*a):\n"
            f"        return {text}\n    return inner\n@by\ndef f(a):\n    return a\n",
        )

    assert digest_of(wrapped("g(*a)")) != digest_of(wrapped("g(*a) + 1"))


def test_functions_without_a_text_have_digests() -> None:
    namespace: dict[str, Any] = {}
    exec("def f(a):\n    return a * 2\ndef g(a):\n    return a * 3\ndef h(a):\n    return a * 2\n", namespace)
    f, g, h = (namespace[name] for name in "fgh")
    assert digest_of(f) == digest_of(h) != digest_of(g)
    assert len(digest_of(len)) == 64


def test_other_processes_see_the_same_digest(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from chunkmill.engine.tables import udf\nWORDS = {'b', 'a', 'c', 'd'}\n"
        "@udf\ndef f(a: int, *, by={'x', 'y', 'z'}) -> int:\n    return a if a in WORDS else 0\n"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", "import own; print(own.f.digest)"],
            cwd=tmp_path,
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1
