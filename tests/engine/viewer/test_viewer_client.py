"""The viewer's client against Rerun's own server, which listens like a viewer and needs no graphics."""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import socket
import subprocess
import sysconfig
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn
from chunkmill.engine.errors import UsageError
from chunkmill.engine.viewer import ViewerClient, send_chunks
from comparison import rerun_chunks

rr = pytest.importorskip("rerun")

RERUN = shutil.which("rerun", path=sysconfig.get_path("scripts"))
if RERUN is None:
    pytest.skip("the program of rerun-sdk is not installed", allow_module_level=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def saving(tmp_path: Path) -> Iterator[tuple[str, Path, Callable[[], None]]]:
    """The URL of a server that saves what it is sent, the file, and what stops the server."""
    port, path = free_port(), tmp_path / "saved.rrd"
    command = [str(RERUN), "--save", str(path), "--port", str(port), "--bind", "127.0.0.1"]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def stop() -> None:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(20)

    try:
        wait_until(lambda: listens(port))
        yield f"rerun+http://127.0.0.1:{port}/proxy", path, stop
    finally:
        stop()


def test_a_connected_client_sends(saving: tuple[str, Path, Callable[[], None]]) -> None:
    url, path, stop = saving
    with ViewerClient.connect(url) as client:
        assert client.url == url
        assert repr(client) == f"ViewerClient('{url}')"
        batch = pa.record_batch({"a": [1, 2]})
        for table in (batch, [batch, batch], pa.table({"a": [1]}), pa.table({"a": pa.array([], pa.int64())})):
            client.send_table("numbers", table)
        with pytest.raises(TypeError, match="argument 'name'"):
            client.send_table(5, batch)  # type: ignore[arg-type]
        with pytest.warns(UserWarning, match="no viewer to stop"):
            client.close()
    recording = rr.RecordingStream("app", recording_id="live", send_properties=False)
    recording.connect_grpc(url)
    sent = Chunk.from_columns("/a", [], [ComponentColumn("volume", [1.0])])
    send_chunks(sent, recording=recording)
    recording.flush(timeout_sec=20)
    recording.disconnect()
    wait_until(lambda: b"/a" in path.read_bytes() or path.stat().st_size > 1500)
    stop()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a file saved live has no footer, which Rerun's reader remarks upon
        assert [c.id for c in rerun_chunks(path)["recording app live"]] == [sent.id]


def test_where_nobody_listens_the_error_says_so() -> None:
    url = f"rerun+http://127.0.0.1:{free_port()}/proxy"
    with pytest.raises(ConnectionError, match=rf"no Rerun viewer answers at {re.escape(url)} .*Start one"):
        ViewerClient.connect(url)


@pytest.mark.parametrize(
    "url", ["", "nonsense", "http://127.0.0.1:9876/proxy", "rerun://127.0.0.1:9876/", "rerun:///proxy"]
)
def test_urls_are_checked(url: str) -> None:
    with pytest.raises(UsageError, match="not the URL of a viewer"):
        ViewerClient.connect(url)


def test_arguments_are_checked() -> None:
    with pytest.raises(TypeError, match="argument 'url'"):
        ViewerClient(5)  # type: ignore[arg-type]
    for port in (0, 65536, True, "9876"):
        with pytest.raises(UsageError, match="argument 'port'"):
            ViewerClient.spawn(port=port)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError):
        ViewerClient.spawn(executable_path="/nowhere/rerun", port=free_port())


@pytest.fixture
def stand_in(tmp_path: Path) -> str:
    """A program that listens like a viewer: Rerun's own, as a server without graphics."""
    path = tmp_path / "viewer"
    path.write_text(
        '#!/bin/sh\nfor a do shift; case $a in --headless|--detach-process) ;; *) set -- "$@" "$a" ;; esac; done\n'
        f'exec "{RERUN}" --serve-grpc --bind 127.0.0.1 "$@" >/dev/null 2>&1\n'
    )
    path.chmod(0o755)
    return str(path)


@pytest.mark.heavy
def test_an_attached_viewer_ends_with_the_block(stand_in: str) -> None:
    port = free_port()
    with ViewerClient.spawn(headless=True, port=port, executable_path=stand_in) as client:
        assert client.url == f"rerun+http://127.0.0.1:{port}/proxy"
        client.send_table("t", pa.record_batch({"a": [1]}))
        assert listens(port)
    assert not listens(port)
    with pytest.warns(UserWarning, match="already stopped it"):
        client.close()


def test_an_attached_viewer_ends_with_its_client(stand_in: str) -> None:
    port = free_port()
    client = ViewerClient.spawn(headless=True, port=port, executable_path=stand_in)
    assert listens(port)
    del client
    gc.collect()
    wait_until(lambda: not listens(port))


@pytest.mark.heavy
def test_a_detached_viewer_goes_on_until_it_is_closed(stand_in: str) -> None:
    port = free_port()
    with ViewerClient.spawn(port=port, executable_path=stand_in) as client:
        pass
    try:
        assert listens(port)
    finally:
        client.close()
    assert not listens(port)


@pytest.mark.heavy
def test_closing_inside_the_block_is_fine(stand_in: str) -> None:
    with ViewerClient.spawn(headless=True, port=free_port(), executable_path=stand_in) as client:
        client.close()


NEWEST = pytest.mark.skipif(
    not hasattr(rr.experimental.ViewerClient, "quit"), reason="the client of this rerun-sdk does no more"
)


@NEWEST
@pytest.mark.heavy
def test_recordings_are_closed_by_the_sdk(monkeypatch: pytest.MonkeyPatch, stand_in: str) -> None:
    with ViewerClient.spawn(headless=True, port=free_port(), executable_path=stand_in) as client:
        asked: list[object] = []
        answer = lambda *given, **named: asked.append((given, named)) or ["Recording:app:1"]  # noqa: E731
        monkeypatch.setattr(client._client, "close", answer)
        assert client.close("all") == client.close(["a", "b"]) == client.close(store_ids=("x",)) == ["Recording:app:1"]
        assert asked == [
            (("all",), {"store_ids": None}),
            ((["a", "b"],), {"store_ids": None}),
            ((None,), {"store_ids": ["x"]}),
        ]


@NEWEST
@pytest.mark.heavy
def test_what_the_sdks_client_has_more_is_passed_on(stand_in: str) -> None:
    with ViewerClient.spawn(headless=True, port=free_port(), executable_path=stand_in) as client:
        theirs = client._client
        more = {name for name in dir(theirs) if not name.startswith("_")} - set(dir(ViewerClient))
        assert "get_state" in more
        for name in more - {"get_location"}:
            assert getattr(client, name) == getattr(theirs, name)
        with pytest.raises(AttributeError, match="nonsense"):
            client.nonsense()
        with pytest.raises(AttributeError, match="_pid"):
            client._pid  # noqa: B018


@pytest.mark.heavy
def test_quitting_is_closing(stand_in: str) -> None:
    port = free_port()
    client = ViewerClient.spawn(port=port, executable_path=stand_in)
    client.quit(timeout=10.0)
    assert not listens(port)
    with pytest.warns(UserWarning, match="already stopped it"):
        client.quit()


class Newer:
    """A client of the SDK with the calls of 0.41; it notes them."""

    url = "rerun+http://127.0.0.1:9876/proxy"

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[object, ...], dict[str, object]]] = []

    def __getattr__(self, name: str) -> object:
        def call(*given: object, **named: object) -> bytes:
            self.calls.append((name, given, named))
            return b"answer"

        return call


def test_the_calls_of_the_newest_sdk() -> None:
    newer = Newer()
    client = ViewerClient._around(newer, kill_on_exit=False)
    client.open(("a.rrd", "b.rrd"), navigate=False)
    client.set_time("frame", sequence=3, play_state="paused")
    assert client.take_screenshot(max_size=64) == b"answer"
    client.get_blueprint("table", table_url="rerun://x")
    client.set_blueprint({"a": 1}, store_id="id")
    assert [(name, given) for name, given, _ in newer.calls] == [
        ("open", (["a.rrd", "b.rrd"],)),
        ("set_time", ("frame",)),
        ("take_screenshot", (None,)),
        ("get_blueprint", ("table",)),
        ("set_blueprint", ({"a": 1}, None)),
    ]
    assert newer.calls[1][2]["sequence"] == 3 and newer.calls[1][2]["play_state"] == "paused"
    client._owns_viewer = False


def test_an_older_sdk_is_named() -> None:
    older = ViewerClient._around(SimpleNamespace(url=Newer.url), kill_on_exit=False)
    for call in (lambda: older.open("a.rrd"), older.set_time, older.take_screenshot, older.get_blueprint):
        with pytest.raises(ImportError, match=r"needs rerun-sdk 0\.41"):
            call()
    older._owns_viewer = False
