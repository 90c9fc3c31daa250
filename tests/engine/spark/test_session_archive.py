from __future__ import annotations

import fcntl
import os
import subprocess
import time
from pathlib import Path

import pytest
from chunkmill.engine.spark.class_archive import ClassArchive, cache_folder
from chunkmill.engine.spark.jvm import Java

WRITES = '#!/bin/sh\nfor a in "$@"; do case "$a" in -XX:SharedArchiveFile=*) echo classes > "${a#*=}";; esac; done\n'
FAILS = "#!/bin/sh\nexit 3\n"


def make_archive(folder: Path, program: str) -> ClassArchive:
    """An archive for a Java that is a shell script."""
    command = folder / "jdk" / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(program)
    command.chmod(0o755)
    jar = folder / "one.jar"
    jar.write_bytes(b"PK")
    return ClassArchive.of(Java(folder / "jdk", "17.0.1", 17), [str(jar)])


def train(names: Path) -> None:
    names.write_text("java/lang/Object\n")


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("CHUNKMILL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_folder_follows_the_environment(monkeypatch, tmp_path):
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("CHUNKMILL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "chunkmill"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "chunkmill"


def test_it_is_used_once_it_is_there(tmp_path, cache):
    archive = make_archive(tmp_path, WRITES)
    assert archive.options() == []
    assert archive.build(train)
    assert f"-XX:SharedArchiveFile={archive.path}" in archive.options()
    assert "-Xshare:auto" in archive.options()
    assert sorted(file.suffix for file in cache.iterdir()) == [".jsa", ".lock"]


def test_another_java_or_other_jars_have_another_archive(tmp_path):
    archive = make_archive(tmp_path, WRITES)
    newer = ClassArchive.of(archive.java._replace(version="17.0.2"), archive.jars)
    (tmp_path / "one.jar").write_bytes(b"PK other")
    changed = ClassArchive.of(archive.java, archive.jars)
    assert len({archive.path, newer.path, changed.path}) == 3


def test_a_failure_leaves_nothing_and_is_not_tried_again_at_once(tmp_path, cache):
    archive = make_archive(tmp_path, FAILS)
    tries: list[Path] = []
    assert not archive.build(tries.append)
    assert not archive.build(tries.append)
    assert len(tries) == 1
    assert not archive.exists
    assert sorted(file.suffix for file in cache.iterdir()) == [".failed", ".lock"]


def test_only_one_process_makes_it(tmp_path, cache):
    archive = make_archive(tmp_path, WRITES)
    cache.mkdir()
    held = os.open(archive.path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert not archive.build(train)
    finally:
        os.close(held)
    assert archive.build(train)


def test_a_folder_that_cannot_be_made_is_harmless(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("CHUNKMILL_CACHE", str(tmp_path / "file" / "cache"))
    archive = make_archive(tmp_path, WRITES)
    assert archive.options() == []
    assert not archive.build(train)


def test_archives_that_nobody_uses_are_removed(tmp_path, cache):
    cache.mkdir()
    stale, recent, foreign = (cache / name for name in ("spark-java17-a.jsa", "spark-java17-b.jsa", "other.jsa"))
    for file in (stale, recent, foreign):
        file.touch()
    long_ago = time.time() - 90 * 24 * 3600
    for file in (stale, foreign):
        os.utime(file, (long_ago, long_ago))
    assert make_archive(tmp_path, WRITES).build(train)
    assert not stale.exists()
    assert recent.exists()
    assert foreign.exists()


def test_as_many_stay_as_were_used_last(tmp_path, cache):
    cache.mkdir()
    for age in range(9):
        file = cache / f"spark-java17-{age}.jsa"
        file.touch()
        os.utime(file, (time.time() - 60 - age, time.time() - 60 - age))
    archive = make_archive(tmp_path, WRITES)
    assert archive.build(train)
    assert sorted(cache.glob("*.jsa")) == sorted([archive.path, *(cache / f"spark-java17-{n}.jsa" for n in range(5))])


def test_one_that_is_no_good_is_thrown_away(tmp_path):
    archive = make_archive(tmp_path, WRITES)
    archive.build(train)
    archive.discard()
    archive.discard()
    assert not archive.exists


@pytest.mark.parametrize("spoil", ["there", "failed", "folder"])
def test_no_process_is_started_where_it_would_be_in_vain(monkeypatch, tmp_path, cache, spoil):
    started: list[object] = []
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: started.append(args))
    (tmp_path / "file").touch()
    if spoil == "folder":
        monkeypatch.setenv("CHUNKMILL_CACHE", str(tmp_path / "file" / "cache"))
    archive = make_archive(tmp_path, WRITES)
    if spoil != "folder":
        cache.mkdir()
        archive.path.with_suffix(".jsa" if spoil == "there" else ".failed").touch()
    archive.build_in_background()
    assert not started
