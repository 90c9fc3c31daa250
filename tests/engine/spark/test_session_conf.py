from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from chunkmill.engine.spark.session_conf import (
    is_local,
    jvm_options,
    session_conf,
    spark_home,
    starts_directly,
    wanted_master,
    worker_path,
)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch, tmp_path):
    for name in ("CHUNKMILL_MASTER", "PYSPARK_SUBMIT_ARGS", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    (tmp_path / "conf").mkdir()


def test_the_master_argument_wins_then_the_conf_then_the_environment(monkeypatch):
    assert wanted_master(None, None) == "local[*]"
    monkeypatch.setenv("CHUNKMILL_MASTER", "local[3]")
    assert wanted_master(None, None) == "local[3]"
    assert wanted_master(None, {"spark.master": "local[2]"}) == "local[2]"
    assert wanted_master("local[1]", {"spark.master": "local[2]"}) == "local[1]"


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2,4]"])
def test_local_masters(master):
    assert is_local(master)
    assert starts_directly(master)


@pytest.mark.parametrize("master", ["yarn", "k8s://https://host:1", "local-cluster[1,1,512]", "sc://host"])
def test_other_masters_are_left_to_the_launcher(master):
    assert not is_local(master)
    assert not starts_directly(master)


def test_a_standalone_master_starts_directly():
    assert starts_directly("spark://host:7077")


def test_what_only_the_launcher_understands_is_left_to_it(monkeypatch, tmp_path):
    monkeypatch.setenv("SPARK_HOME", str(spark_home()))
    assert starts_directly("local")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert not starts_directly("local")
    monkeypatch.delenv("SPARK_HOME")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--packages a:b:1 pyspark-shell")
    assert not starts_directly("local")
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS")
    (tmp_path / "conf" / "spark-env.sh").touch()
    assert not starts_directly("local")


def test_the_users_settings_win_over_the_file_and_the_file_over_ours(tmp_path):
    (tmp_path / "conf" / "spark-defaults.conf").write_text(
        "# a comment\nspark.driver.memory  3g\nspark.ui.enabled=true\nspark.app.name  a name: with = signs\n"
    )
    conf = session_conf("local[2]", {"spark.ui.enabled": "false"}, tmp_path)
    assert conf["spark.driver.memory"] == "3g"
    assert conf["spark.ui.enabled"] == "false"
    assert conf["spark.app.name"] == "a name: with = signs"
    assert conf["spark.master"] == "local[2]"
    assert conf["spark.driver.bindAddress"] == "127.0.0.1"


def test_a_cluster_keeps_its_own_addresses_and_folders(tmp_path):
    conf = session_conf("spark://host:7077", None, tmp_path)
    assert "spark.driver.bindAddress" not in conf
    assert "spark.local.dir" not in conf


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,512]"])
def test_workers_of_this_machine_are_reached_through_sockets_in_the_folder_of_the_session(master):
    conf = session_conf(master, None, Path("/tmp/chunkmill-spark-1"))
    assert conf["spark.python.unix.domain.socket.enabled"] == "true"
    assert conf["spark.python.unix.domain.socket.dir"] == "/tmp/chunkmill-spark-1"


@pytest.mark.parametrize(("master", "folder"), [("spark://host:7077", "/tmp/here"), ("local[2]", f"/tmp/{60 * 'x'}")])
def test_other_workers_and_paths_too_long_for_a_socket_keep_to_the_network(master, folder):
    assert "spark.python.unix.domain.socket.enabled" not in session_conf(master, None, Path(folder))


@pytest.mark.parametrize(
    ("size", "flag"), [("1g", "-Xmx1g"), ("2GB", "-Xmx2g"), ("1500", "-Xmx1500m"), ("64mb", "-Xmx64m")]
)
def test_driver_memory_becomes_a_flag(size, flag):
    assert jvm_options({"spark.driver.memory": size}) == [flag]


def test_java_options_are_split_as_a_shell_would():
    conf = {
        "spark.driver.memory": "1g",
        "spark.driver.defaultJavaOptions": "-Da=1",
        "spark.driver.extraJavaOptions": '-Db="x y" -Dc=2',
        "spark.driver.extraLibraryPath": "/opt/native",
    }
    assert jvm_options(conf)[1:] == ["-Da=1", "-Db=x y", "-Dc=2", "-Djava.library.path=/opt/native"]


def test_workers_see_what_the_driver_sees(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "missing")])
    paths = worker_path().split(os.pathsep)
    assert paths[0] == str(tmp_path)
    assert str(tmp_path / "missing") not in paths
    assert not any(Path(path).name == "site-packages" for path in paths)
