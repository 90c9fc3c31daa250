"""Rerun's native viewer on a virtual screen, or without a window, driven through its own control server.

``rerun viewer-mcp`` speaks JSON-RPC by lines; its tools tell what is on the screen as a tree of widgets, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SECONDS = 60.0


class NativeViewer:
    """A running viewer of a size in points. It ends with the ``with`` block."""

    def __init__(self, program: str, log: Path, width: int = 1280, height: int = 800) -> None:
        self._stack = contextlib.ExitStack()
        home = self._stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        # a home of its own: nothing is remembered from the last time, nor told to anyone
        environment = {**os.environ, "HOME": home, "XDG_RUNTIME_DIR": home, "RUST_LOG": "info", "LANG": "C.UTF-8"}
        words = [program, "--window-size", f"{width}x{height}", "--renderer", "vulkan", "--port", str(free_port())]
        screen = shutil.which("Xvfb")
        if screen is None:
            words.append("--headless")
        else:
            environment["DISPLAY"] = self._stack.enter_context(virtual_screen(screen, width, height))
            environment.pop("WAYLAND_DISPLAY", None)
        output = self._stack.enter_context(log.open("wb"))
        self.process = self._started(words, environment, stdout=output, stderr=output)
        asked = [program, "viewer-mcp"]
        self._tools = self._started(asked, environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output)
        self._number = 0
        self.call("initialize", protocolVersion="2025-03-26", capabilities={}, clientInfo={"name": "t", "version": "1"})
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        endpoint, ends = f"http://127.0.0.1:{words[6]}", time.monotonic() + SECONDS
        while True:
            try:
                self.tool("rerun_connect", endpoint=endpoint)
                break
            except RuntimeError:
                if self.process.poll() is not None or time.monotonic() > ends:
                    self._stack.close()
                    raise
                time.sleep(0.5)

    def _started(self, words: list[str], environment: dict[str, str], **pipes: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(words, env=environment, **pipes)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def _send(self, message: dict[str, Any]) -> None:
        assert self._tools.stdin is not None
        self._tools.stdin.write(json.dumps(message).encode() + b"\n")
        self._tools.stdin.flush()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request and give its result. Raises ``RuntimeError`` where it fails."""
        assert self._tools.stdout is not None
        self._number += 1
        self._send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        while line := self._tools.stdout.readline():
            message = json.loads(line)
            if message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
        raise RuntimeError(f"the viewer's tools have ended with {self._tools.wait()}")

    def tool(self, name: str, **arguments: Any) -> Any:
        """Use a tool, and give what it says, as JSON where it is some."""
        result = self.call("tools/call", name=name, arguments=arguments)
        text = "".join(part["text"] for part in result["content"] if part["type"] == "text")
        if result.get("isError"):
            raise RuntimeError(f"{name}: {text}")
        try:
            return json.loads(text)
        except ValueError:
            return text

    def open(self, url: str) -> None:
        """Show a place, and wait until what it has is loaded."""
        self.tool("rerun_open", url=url)
        ends = time.monotonic() + SECONDS
        while self.tool("rerun_get_state").get("loading"):
            if time.monotonic() > ends:
                raise TimeoutError(f"{url} is still loading")
            time.sleep(0.5)

    def texts(self) -> list[tuple[str, str]]:
        """The role and text of each widget on the screen."""

        def walk(nodes: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
            for node in nodes:
                if text := node.get("value") or node.get("label"):
                    yield node.get("role", ""), text
                yield from walk(node.get("children", []))

        return list(walk(self.tool("widget_tree", limit=2000)["nodes"]))

    def shows(self, text: str, seconds: int) -> bool:
        """Whether a text is on the screen within so many seconds."""
        ends = time.monotonic() + seconds
        while not any(text in shown for _, shown in self.texts()):
            if time.monotonic() > ends:
                return False
            time.sleep(0.5)
        return True

    def logs(self) -> list[tuple[str, str, str]]:
        """The level, origin and text of each message of the viewer, from INFO up."""
        entries = self.tool("rerun_get_logs")["entries"]
        return [(entry["level"], entry["target"], entry["message"]) for entry in entries]

    def reports(self) -> list[Any]:
        """What the views of the recording on the screen say has failed, or is doubtful."""
        return [view["reports"] for view in self.tool("rerun_get_state").get("views", []) if view.get("reports")]

    def picture(self, path: Path) -> bytes:
        """Save the screen as a PNG, a pixel for each point."""
        self.tool("screenshot", save_path=str(path))
        return path.read_bytes()

    def __enter__(self) -> NativeViewer:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


@contextlib.contextmanager
def virtual_screen(program: str, width: int, height: int) -> Iterator[str]:
    """The name of a screen that nobody sees."""
    reads, writes = os.pipe()
    words = [program, "-displayfd", str(writes), "-screen", "0", f"{width}x{height}x24", "-nolisten", "tcp"]
    with subprocess.Popen(words, pass_fds=[writes], stderr=subprocess.DEVNULL) as process, os.fdopen(reads) as told:
        os.close(writes)
        try:
            yield f":{told.readline().strip()}"
        finally:
            process.kill()


def free_port() -> int:
    """A port that nothing has."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
