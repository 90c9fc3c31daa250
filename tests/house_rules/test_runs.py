"""What a plain run of the tests takes and what stops it: quick tests, fixed examples, no deprecation of a library."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]

PROPERTY = """
from hypothesis import given, settings, strategies as st

@settings(max_examples=20)
@given(st.integers())
def test_property(number):
    print("EXAMPLE", number)
    assert number < {bound}
"""

WARNING = """
import warnings

def test_warning():
    warnings.warn_explicit("it is old", {category}, "f.py", 1, module="{module}")
"""


MARKED = """
import subprocess
import pytest

def started():
    return subprocess.run(["true"])

class Helper:
    def start(self):
        return started()

@pytest.fixture
def server():
    return started()

def test_inline(): ...
def test_process(): started()
def test_process_of_a_class(): Helper().start()
def test_process_of_a_fixture(server): ...
def test_spark(spark): ...
def test_own_session(): return "local[2]"
@pytest.mark.quick
def test_slice_of_spark(spark): ...
@pytest.mark.parametrize("executor", ["inline", "spark"])
def test_both(executor): ...
@pytest.mark.slow
def test_slow(): ...
@pytest.mark.wide
def test_wide(): ...
"""


def run(folder: Path, text: str, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a file of tests by the settings of this repository."""
    (folder / "test_one.py").write_text(text)
    unset = ("CI", "CHUNKMILL_TEST_EXAMPLES", "PYTEST_ADDOPTS")
    usual = {name: value for name, value in os.environ.items() if name not in unset}
    command = [sys.executable, "-m", "pytest", "-c", str(TESTS.parent / "pyproject.toml"), "-p", "conftest", "-s"]
    return subprocess.run(
        [*command, *options, "test_one.py"],
        cwd=folder,
        env={**usual, "PYTHONPATH": str(TESTS), "TMPDIR": str(folder), **variables},
        capture_output=True,
        text=True,
    )


def chosen(folder: Path, *options: str) -> list[str]:
    """Return the names of the tests that are chosen of ``MARKED``, which is all there is in the folder of tests."""
    (folder / "tests").mkdir(exist_ok=True)
    (folder / "tests" / "test_marked.py").write_text(MARKED)
    shutil.copy(TESTS.parent / "pyproject.toml", folder)
    usual = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "conftest", "--collect-only", "-q", *options],
        cwd=folder,
        env={**usual, "PYTHONPATH": str(TESTS), "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
    )
    return re.findall(r"::test_(\S+)", done.stdout)


QUICK = ["inline", "slice_of_spark", "both[inline]"]


def test_a_plain_run_takes_the_quick_tests_and_a_slice(tmp_path: Path) -> None:
    assert chosen(tmp_path) == chosen(tmp_path, "-m", "quick") == QUICK


def test_marks_follow_from_what_a_test_does(tmp_path: Path) -> None:
    assert chosen(tmp_path, "-m", "process") == ["process", "process_of_a_class", "process_of_a_fixture"]
    assert chosen(tmp_path, "-m", "spark") == ["spark", "own_session", "slice_of_spark", "both[spark]"]


def test_tests_that_are_named_run_unless_they_are_slow_and_all_run_on_demand(tmp_path: Path) -> None:
    everything = chosen(tmp_path, "-m", "")
    assert len(everything) == 11
    assert chosen(tmp_path, "tests/test_marked.py") == [name for name in everything if name != "slow"]
    assert chosen(tmp_path, "-k", "own_session") == ["own_session"]
    assert set(chosen(tmp_path, "-m", "not quick")) == set(everything) - set(QUICK)


def examples(output: str) -> list[str]:
    return re.findall(r"EXAMPLE (-?\d+)", output)


def test_a_plain_run_takes_the_same_examples(tmp_path: Path) -> None:
    first, second = (run(tmp_path, PROPERTY.format(bound=10**60)) for _ in range(2))
    assert first.returncode == second.returncode == 0, first.stdout
    assert examples(first.stdout) == examples(second.stdout)
    assert len(examples(first.stdout)) == 20


def test_a_fresh_run_takes_others_and_as_many_as_are_asked_for(tmp_path: Path) -> None:
    text, fresh = PROPERTY.format(bound=10**60), "--hypothesis-profile=fresh"
    first, second = (run(tmp_path, text, fresh, CHUNKMILL_TEST_EXAMPLES="5").stdout for _ in range(2))
    assert examples(first) != examples(second)
    assert len(examples(first)) == len(examples(second)) == 100


def test_a_fresh_run_that_fails_says_the_command_that_repeats_it(tmp_path: Path) -> None:
    first = run(tmp_path, PROPERTY.format(bound=3), "--hypothesis-profile=fresh", CHUNKMILL_TEST_EXAMPLES="5")
    assert first.returncode == 1
    again = re.search(
        r"^again: CHUNKMILL_TEST_EXAMPLES=5 python -m pytest (.* -m hypothesis) .*$", first.stdout, re.MULTILINE
    )
    assert again is not None, first.stdout
    second = run(tmp_path, PROPERTY.format(bound=3), *shlex.split(again[1]), CHUNKMILL_TEST_EXAMPLES="5")
    assert examples(second.stdout) == examples(first.stdout)


@pytest.mark.parametrize(
    ("category", "module", "plain"),
    [
        ("DeprecationWarning", "test_one", 0),
        ("FutureWarning", "test_one", 0),
        ("UserWarning", "numpy.lib", 0),
        ("UserWarning", "test_one", 1),
        ("DeprecationWarning", "chunkmill.engine.chunk", 1),
        ("RuntimeWarning", "chunkmill", 1),
    ],
)
def test_warnings_of_others_are_shown_and_stop_ci_alone(tmp_path: Path, category: str, module: str, plain: int) -> None:
    text = WARNING.format(category=category, module=module)
    ran = run(tmp_path, text)
    assert ran.returncode == plain, ran.stdout
    assert f"{category}: it is old" in ran.stdout
    assert run(tmp_path, text, CI="true").returncode == 1
