"""Ctrl-C and SIGTERM, wherever a process is when they come."""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine.execution.commit import Staging
from chunkmill.engine.spark import gateway
from chunkmill.engine.spark.gateway import (
    Terminated,
    interrupt_behind,
    interruptible,
    keeping_interrupt,
    raise_in_thread,
    take_signals,
)
from chunkmill.engine.storage.folder import LocalFolder


@pytest.fixture(autouse=True)
def usual(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The answers of a fresh process, whatever pytest and Spark have made of them."""
    before = {kind: signal.getsignal(kind) for kind in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    monkeypatch.setattr(gateway._State, "received_at", None)
    yield
    for kind, handler in before.items():
        signal.signal(kind, handler)


def come(kind: signal.Signals) -> None:
    """Let a signal come, and be noticed."""
    os.kill(os.getpid(), kind)
    time.sleep(0.5)


def test_sigterm_ends_a_script_with_143_and_ctrl_c_as_ever() -> None:
    with pytest.raises(SystemExit) as ended, interruptible(), interruptible():
        come(signal.SIGTERM)
    assert ended.value.code == 143
    gateway._State.received_at = None
    with pytest.raises(KeyboardInterrupt), interruptible():
        come(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_it_passes_every_except_exception_and_its_echo_is_no_second_one() -> None:
    cleared = []

    def work() -> None:
        try:
            come(signal.SIGTERM)
        except Exception:  # noqa: BLE001 (what users write)
            cleared.append("wrongly")
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            cleared.append("up")

    with pytest.raises(SystemExit), interruptible():
        work()
    assert cleared == ["up"]


def test_answers_that_the_program_has_chosen_are_left_alone() -> None:
    came: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interruptible():
        come(signal.SIGTERM)
        come(signal.SIGINT)
    assert came == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_an_import_comes_to_its_end_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken in it, it may leave half of a module behind, and who imported may go on with that."""
    body = "import os, signal, time\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(0.2)\nwhole = True\n"
    (tmp_path / "told_while_imported.py").write_text(body)
    monkeypatch.syspath_prepend(str(tmp_path))

    def work() -> None:
        importlib.import_module("told_while_imported")
        time.sleep(1.0)

    with pytest.raises(SystemExit), interruptible():
        work()
    assert sys.modules.pop("told_while_imported").whole is True


def test_an_import_that_takes_too_long_is_broken_and_what_it_swallows_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pyarrow swallows it while it looks for pandas; what is being cleared away is left to end."""
    monkeypatch.setattr(gateway, "_IMPORT_SECONDS", 0.1)
    body = "import os, signal, time\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(0.4)\n"
    (tmp_path / "swallows.py").write_text(f"try:\n    exec({body!r})\nexcept BaseException:\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    done: list[str] = []

    def work() -> None:
        importlib.import_module("swallows")
        try:
            time.sleep(1.0)
            done.append("all of it")
        finally:
            time.sleep(0.2)
            done.append("cleared away")

    with pytest.raises(SystemExit), interruptible():
        work()
    assert done == ["cleared away"]
    time.sleep(0.2)  # nothing comes after the end
    del sys.modules["swallows"]


def test_a_fork_ends_as_if_nothing_had_been_changed() -> None:
    before = take_signals()
    try:
        pid = os.fork()
        if not pid:
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(5)
            finally:
                os._exit(7)
        _, status = os.waitpid(pid, 0)
    finally:
        gateway.give_back(before)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM


def test_other_threads_are_told_as_the_main_one_is() -> None:
    ended: list[BaseException] = []

    def work() -> None:
        try:
            with interruptible():  # nothing to do with signals in here
                while True:
                    time.sleep(0.01)
        except BaseException as error:  # noqa: BLE001 (that is what is looked for)
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert thread.ident is not None
    raise_in_thread(thread.ident)
    thread.join(5)
    assert [type(error) for error in ended] == [KeyboardInterrupt]


def test_an_import_of_another_thread_comes_to_its_end_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As pyarrow's of pandas, with the first values that a batch makes an array of: it swallowed the interrupt."""
    (tmp_path / "slowly_imported.py").write_text("import time\nbegun = True\ntime.sleep(0.3)\nwhole = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    ended: list[BaseException] = []

    def work() -> None:
        try:
            importlib.import_module("slowly_imported")
            for _ in range(500):  # what is raised in a thread waits for the end of a call
                time.sleep(0.01)
        except BaseException as error:  # noqa: BLE001 (that is what is looked for)
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while not hasattr(sys.modules.get("slowly_imported"), "begun"):
        time.sleep(0.005)
    assert thread.ident is not None
    raise_in_thread(thread.ident)
    assert sys.modules.pop("slowly_imported").whole is True
    thread.join(10)
    assert [type(error) for error in ended] == [KeyboardInterrupt]


def test_what_is_behind_the_error_of_a_cancelled_job_is_found() -> None:
    def broken() -> None:
        try:
            raise Terminated
        finally:
            raise RuntimeError("the job was cancelled")

    with pytest.raises(RuntimeError) as caught:
        broken()
    assert isinstance(interrupt_behind(caught.value), Terminated)
    assert interrupt_behind(ValueError()) is None


def test_the_handler_of_ctrl_c_is_kept_where_pyspark_replaces_it() -> None:
    with keeping_interrupt():
        signal.signal(signal.SIGINT, lambda *_: None)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_task_that_still_writes_adds_nothing_to_what_is_removed(tmp_path: Path, monkeypatch: Any) -> None:
    with Staging.beside(tmp_path / "out.rrd") as staging:
        place = staging.local

        def write_late(path: Path, **_: Any) -> None:
            with pytest.raises(FileNotFoundError):
                (place / "000000.part.open").touch()
            for file in path.iterdir():
                file.unlink()
            path.rmdir()

        monkeypatch.setattr("shutil.rmtree", write_late)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", [Staging, LocalFolder], ids=["before its folder is renamed", "after that"])
def test_a_signal_while_staging_is_removed_leaves_nothing(kind: type, tmp_path: Path, monkeypatch: Any) -> None:
    real = kind.remove
    calls = []

    def interrupted_once(thing: Any) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        real(thing)

    monkeypatch.setattr(kind, "remove", interrupted_once)
    with pytest.raises(KeyboardInterrupt), Staging.beside(tmp_path / "out.rrd"):
        pass
    assert not list(tmp_path.iterdir())


def test_a_name_as_long_as_there_can_be_has_a_staging_folder(tmp_path: Path) -> None:
    for name in ("x" * 251 + ".rrd", "é" * 125 + ".rrd"):
        with Staging.beside(tmp_path / name) as staging:
            assert staging.local.is_dir()
            (tmp_path / name).touch()
        left = Staging.beside(tmp_path / name)  # of a run that died, as it were
        (left.local / "owner.json").write_text(json.dumps({"host": socket.gethostname(), "pid": 2147483000}))
        with Staging.beside(tmp_path / name):
            assert not left.local.exists()
