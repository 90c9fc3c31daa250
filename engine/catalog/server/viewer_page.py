"""The page of Rerun's viewer for browsers, as the installed rerun-sdk brings it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import Final

from ...errors import MissingExtraError, UsageError, extra_command
from .web import Page

_PATHS: Final = ("index.html", "re_viewer.js", "re_viewer_bg.wasm", "favicon.ico", "apple-touch-icon.png", "sw.js")
_NEEDED: Final = _PATHS[:3]
_SECONDS: Final = 30.0
# in a process of its own, which ends when it has told its files: the SDK serves them on a port that cannot be closed
_SCRIPT: Final = """
import socket, sys
import rerun
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
rerun.init("chunkmill")
rerun.serve_web_viewer(web_port=port, open_browser=False)
print(port, flush=True)
sys.stdin.read()
"""


def viewer_pages() -> dict[str, Page]:
    """The files of the page by their paths, with ``/`` the page itself.

    Raises
    ------
    MissingExtraError
        The package rerun-sdk is not installed.
    UsageError
        It has no page.
    """
    if importlib.util.find_spec("rerun") is None:
        raise MissingExtraError("the viewer's page is in rerun-sdk", hint=extra_command("serve", "viewer"))
    with subprocess.Popen(  # noqa: S603 (this interpreter, and a script of ours)
        [sys.executable, "-c", _SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            port = process.stdout.readline().strip().decode()
            pages = {} if not port else _fetched(f"http://127.0.0.1:{port}")
        finally:
            process.stdin.close()
            process.kill()
    if any(f"/{path}" not in pages for path in _NEEDED):
        raise UsageError("the installed rerun-sdk has no page of a viewer", hint="pip install -U rerun-sdk")
    return {"/": pages["/index.html"], **pages}


def _fetched(address: str) -> dict[str, Page]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    found: dict[str, Page] = {}
    ends = time.monotonic() + _SECONDS
    for path in _PATHS:
        while True:
            try:
                with opener.open(f"{address}/{path}", timeout=_SECONDS) as response:
                    found[f"/{path}"] = Page(response.headers["content-type"], response.read())
            except urllib.error.HTTPError:
                pass
            except urllib.error.URLError:
                if time.monotonic() < ends:
                    time.sleep(0.1)
                    continue
            break
    return found
