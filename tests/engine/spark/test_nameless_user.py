"""Spark for a user who has a number alone, as in a container: no name, no home, no group."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from chunkmill.engine.spark import class_archive, session_conf
from chunkmill.engine.spark.jvm import find_java

NUMBER = 12345
LAUNCHER = [
    *("setpriv", f"--reuid={NUMBER}", f"--regid={NUMBER}", "--clear-groups"),
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),  # the interpreter may be in a folder of root's
]


@pytest.fixture
def nameless(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user of this process has no row in the password file."""
    import pwd

    def no_row(_uid: int) -> None:
        raise KeyError("uid not found")

    monkeypatch.setattr(pwd, "getpwuid", no_row)
    for name in ("SPARK_USER", "HADOOP_USER_NAME"):
        monkeypatch.delenv(name, raising=False)


def test_a_user_with_a_name_needs_nothing() -> None:
    assert not session_conf.is_nameless()
    assert session_conf.user_environment() == {}
    assert session_conf.user_options(Path("/scratch")) == []


def test_a_number_stands_for_the_name(nameless: None, monkeypatch: pytest.MonkeyPatch) -> None:
    number = str(os.getuid())
    assert session_conf.user_environment() == {"SPARK_USER": number, "HADOOP_USER_NAME": number}
    assert session_conf.user_options(Path("/scratch")) == ["-Duser.home=/scratch"]
    monkeypatch.setenv("SPARK_USER", "robot")
    assert session_conf.user_environment() == {"HADOOP_USER_NAME": number}


def test_classes_come_from_a_folder_that_is_of_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("CHUNKMILL_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    own = tmp_path / f"chunkmill-{os.getuid()}"
    assert class_archive.cache_folder() == own / "cache"
    assert own.stat().st_mode & 0o777 == 0o700
    own.chmod(0o777)
    assert not class_archive.cache_folder().is_relative_to(own)


@pytest.mark.slow
def test_commands_that_need_spark_run(data: Path) -> None:
    if os.getuid() or shutil.which("setpriv") is None or ctypes.sizeof(ctypes.c_void_p) < 8:
        pytest.skip("needs root and setpriv")
    if not all(folder.stat().st_mode & 1 for folder in find_java().executable.parents):
        pytest.skip("others may not enter the folder of Java, and no capability lets them run it")
    with tempfile.TemporaryDirectory(prefix="nameless-", dir="/tmp") as folder:  # the folder of the tests is root's
        home = Path(folder)
        (home / "landing").mkdir()
        shutil.copy(data / "demo.mcap", home / "landing")
        for path in (home, home / "landing"):
            path.chmod(0o777)
        environment = {"PATH": os.environ["PATH"], "TMPDIR": folder, "CHUNKMILL_EXECUTOR": "spark"}
        chunkmill = [*LAUNCHER, sys.executable, "-m", "chunkmill"]
        for words in (
            ["convert", str(data / "demo.mcap"), "-o", "a.rrd", "--master", "local[2]"],
            ["ingest", "landing", "--into", "lake", "--dataset", "drives", "--once", "--settle", "0s"],
        ):
            done = subprocess.run([*chunkmill, *words], cwd=home, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        assert (home / "a.rrd").stat().st_uid == NUMBER
