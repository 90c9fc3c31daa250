"""Chromium without a window, driven over a pipe by its DevTools protocol: pages opened, measured and pictured.

Protocol: https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")

_OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # a container has no user namespaces; only pages of this repository are opened
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--allow-file-access-from-files",
    "--remote-debugging-pipe",
)
WITHOUT_3D = ("--disable-gpu",)
WEBGL = ("--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader")
"""Options that draw WebGL without a graphics card."""
_SECONDS = 60.0


def find_browser() -> str | None:
    """The program of Chromium, if it is installed."""
    return next((found for found in map(shutil.which, PROGRAMS) if found), None)


class Page:
    """One tab: what it shows, and the errors that its console has had since the last :meth:`go`."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._loaded = False
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command of the protocol, and give its result. Raises ``RuntimeError`` where it fails."""
        return self._browser.call(method, params, self._session)

    def look(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the size of the window in CSS pixels, and whether the system asks for dark colours."""
        # Not as a mobile device: those zoom out of a page that is too wide, and it would look as if it fitted.
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def go(self, url: str) -> None:
        """Open a page and wait until it has loaded."""
        self.errors.clear()
        self.requests.clear()
        self._loaded = False
        failure = self.call("Page.navigate", url=url).get("errorText")
        if failure:
            raise RuntimeError(f"{url}: {failure}")
        self._browser.wait(lambda: self._loaded)

    def value_of(self, expression: str) -> Any:
        """What a JavaScript expression gives; a promise is waited for."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"]))
        return result["result"].get("value")

    def picture(self, *, whole: bool = False, quality: int = 80) -> bytes:
        """What the window shows, or the ``whole`` page, as WebP."""
        taken = self.call("Page.captureScreenshot", format="webp", quality=quality, captureBeyondViewport=whole)
        return base64.b64decode(taken["data"])

    def take(self, method: str, params: dict[str, Any]) -> None:
        """Take an event of the tab."""
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.errors.append(" ".join(str(arg.get("value", arg.get("description", arg))) for arg in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")


class Browser:
    """A running Chromium, with options of its own; it ends with the ``with`` block."""

    def __init__(self, program: str, options: Sequence[str] = WITHOUT_3D) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="chunkmill-browser-", ignore_cleanup_errors=True)
        reads, self._to = os.pipe()
        self._from, writes = os.pipe()
        # It reads from 3 and writes to 4; copies above 9 are not in the way of these.
        far = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (reads, writes)]
        command = f'exec "$@" 3<&{far[0]} 4>&{far[1]}'
        all_options = [*_OPTIONS, *options, f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = subprocess.Popen(  # noqa: S603
            ["/bin/bash", "-c", command, "bash", program, *all_options],
            pass_fds=far,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for fd in (reads, writes, *far):
            os.close(fd)
        self._number = 0
        self._bytes = b""
        self._answers: dict[int, dict[str, Any]] = {}
        self._pages: dict[str, Page] = {}

    def open(self) -> Page:
        """A new tab."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        self._pages[session] = page = Page(self, session)
        return page

    def call(self, method: str, params: dict[str, Any], session: str | None = None) -> dict[str, Any]:
        """Send a command and give its result."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        self.wait(lambda: number in self._answers)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def wait(self, done: Any) -> None:
        """Take messages until ``done()``. Raises ``TimeoutError``."""
        deadline = time.monotonic() + _SECONDS
        while not done():
            left = deadline - time.monotonic()
            ready = left > 0 and select.select([self._from], [], [], left)[0]
            data = os.read(self._from, 1 << 20) if ready else b""
            if not data:
                raise TimeoutError(f"the browser does not answer (exit code {self._process.poll()})")
            *messages, self._bytes = (self._bytes + data).split(b"\0")
            for message in messages:
                self._take(json.loads(message))

    def _take(self, message: dict[str, Any]) -> None:
        if "id" in message:
            self._answers[message["id"]] = message
        elif page := self._pages.get(message.get("sessionId", "")):
            page.take(message["method"], message["params"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._to)  # its end of the pipe tells it to go
        os.close(self._from)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._profile.cleanup()
