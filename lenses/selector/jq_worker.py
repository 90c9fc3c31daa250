"""The program of the helper process that runs jq: it reads requests on its input and writes answers on its output.

A message is a length (8 bytes, big-endian) and as many bytes of JSON. A request is ``[program, text]``; ``text`` is
the JSON array of elements, as a string; if it is null, the program is only compiled. An answer is
``{"outputs": text}`` or ``{"error": text}``. This file is run by its path, so it imports nothing of the project.
"""

from __future__ import annotations

import json
import os
import re
import resource
import struct
import sys
from functools import lru_cache
from typing import Any, BinaryIO

import jq

_LENGTH = struct.Struct(">Q")
_MOST_DEPTH = 900
_BRACKETS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[][{}]')


def _is_deeper(text: str, most: int) -> bool:
    """Return whether a JSON text is nested more than ``most`` levels deep; brackets in strings do not count."""
    if text.count("[") + text.count("{") <= most:
        return False
    depth = 0
    for bracket in _BRACKETS.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(bracket[0], 0)
        if depth > most:
            return True
    return False


@lru_cache(maxsize=64)
def compiled(program: str) -> Any:
    """Compile ``program`` to run on each element of an array, with one array of outputs for each."""
    if "\0" in program:  # where jq would stop reading
        raise ValueError("the program contains a null character")
    jq.compile(program)  # first alone: the brackets must not make an invalid program valid
    return jq.compile(f"map([{program}\n\n])")  # a backslash continues a comment on the next line


def answer(program: str, text: str | None) -> dict[str, str]:
    """The answer to one request."""
    try:
        whole = compiled(program)
        if text is None:
            return {"outputs": ""}
        outputs = whole.input_text(text).text()
    except RecursionError:
        return {"error": "its outputs are nested too deeply"}
    except MemoryError:
        return {"error": "out of memory"}
    except ValueError as error:
        return {"error": str(error) or "an error without a message"}
    if _is_deeper(outputs, _MOST_DEPTH):  # otherwise the depth limit depends on the version of Python
        return {"error": "its outputs are nested too deeply"}
    if not outputs:  # there is always an array of all outputs, unless the program halted
        return {"error": "it ended with `halt` or `halt_error` before all elements were processed"}
    return {"outputs": outputs}


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer until the input ends."""
    while len(head := requests.read(_LENGTH.size)) == _LENGTH.size:
        program, text = json.loads(requests.read(_LENGTH.unpack(head)[0]))
        body = json.dumps(answer(program, text)).encode()
        answers.write(_LENGTH.pack(len(body)) + body)
        answers.flush()


if __name__ == "__main__":
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ.clear()  # programs can read the environment, so it is emptied
    serve(sys.stdin.buffer, sys.stdout.buffer)
