"""The process that answers calls for the server: one at a time, with limits of time and memory. It may be killed.

A request is a line of JSON, ``{"tool": …, "arguments": {…}}``. An answer is a line of JSON with ``text``, ``png`` or
``error``; the first line has ``ready``.
"""

from __future__ import annotations

import base64
import json
import os
import re
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any, BinaryIO, Final

from ..errors import (
    ChunkmillError,
    LensError,
    NotFoundError,
    ReadWarning,
    SchemaConflictError,
    SelectorError,
    UnsupportedError,
    UsageError,
)
from .tools import TOOLS, LakeTools

_OF_CALLS: Final = (UsageError, NotFoundError, SelectorError, LensError, SchemaConflictError)
"""Errors caused by a call. Other errors come from the lake, and may contain places of its files."""
_FILE: Final = re.compile(
    r"(?:\b\w+:/|(?<![\w/]))/[^:\n]{0,400}?\.(?:rrd|rbl|mcap|arrows?|lance|parquet|bag|db3|h5|hdf5|mp4)\b"
)
_GRACE_SECONDS: Final = 5
"""The seconds, beyond the limit of a call, after which a process without a server ends."""


def main(arguments: list[str]) -> None:
    """Answer requests until the input ends."""
    lake, most_rows, most_bytes, memory, seconds = arguments
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries may print
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    from ..catalog import CatalogClient, CatalogContext

    tools = LakeTools(CatalogClient(lake).for_clients(()), int(most_rows), int(most_bytes))
    del CatalogContext  # imported before memory is limited
    _confine(int(memory))
    _send(answers, {"ready": True})
    serve(tools, requests, answers, seconds=int(seconds) + _GRACE_SECONDS, lake=lake)


def serve(tools: LakeTools, requests: BinaryIO, answers: BinaryIO, *, seconds: int, lake: str) -> None:
    """Answer requests until they end. A call that takes more than ``seconds`` ends the process."""
    for line in requests:
        signal.alarm(seconds)
        answer = answered(tools, json.loads(line), lake)
        _send(answers, answer)
        signal.alarm(0)


def _send(answers: BinaryIO, value: dict[str, Any]) -> None:
    answers.write(json.dumps(value).encode() + b"\n")
    answers.flush()


def answered(tools: LakeTools, request: dict[str, Any], lake: str) -> dict[str, Any]:
    """The answer to a request."""
    try:
        assert request["tool"] in TOOLS
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always", ReadWarning)
            result = getattr(tools, request["tool"])(**request["arguments"])
        if isinstance(result, bytes):
            return {"png": base64.b64encode(result).decode()}
        notes = list(dict.fromkeys(str(w.message) for w in noted if issubclass(w.category, ReadWarning)))
        if notes:
            result["notes"] = [without_places(note, lake) for note in notes[:5]]
        return {"text": json.dumps(result, ensure_ascii=False)}
    except MemoryError:
        return {"error": "the call exceeds its memory limit. Request less data."}
    except Exception as error:  # noqa: BLE001 (whatever a library raises on what was asked)
        return {"error": without_places(_words(error), lake)}


def _words(error: Exception) -> str:
    if isinstance(error, _OF_CALLS) or type(error) is UnsupportedError:
        assert isinstance(error, ChunkmillError)
        return " ".join(filter(None, [error.message.rstrip(".") + ".", error.hint]))
    if type(error) in (TypeError, ValueError):
        return f"{error}."
    traceback.print_exception(error)
    return f"the lake cannot be read ({type(error).__name__}). See the server's standard error for details."


def without_places(text: str, lake: str) -> str:
    """The text without the names of files and folders of this machine.

    >>> without_places("no file in /srv/lake/drives", "/srv/lake")
    'no file in LAKE/drives'
    >>> without_places("s3://bucket/my drives/a.rrd: one chunk is damaged", "/srv/lake")
    'a file: one chunk is damaged'
    """
    text = _FILE.sub("a file", text)
    path = Path(lake)
    own = [lake.rstrip("/"), *([] if "://" in lake else [path.resolve().as_uri(), str(path.resolve())])]
    for place in sorted((place for place in own if len(place) > 1), key=len, reverse=True):
        text = text.replace(place, "LAKE")
    for place in (str(Path.cwd()), str(Path.home()), sys.prefix, tempfile.gettempdir()):
        text = text.replace(place, "…") if len(place) > 1 else text
    return text


def _confine(memory: int) -> None:
    """Limit the memory of this process to ``memory`` more bytes, if the system reports its present size."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sizes = Path("/proc/self/statm")
    if sizes.exists():
        most = int(sizes.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE") + memory
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


if __name__ == "__main__":
    main(sys.argv[1:])
