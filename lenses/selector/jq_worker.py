"""The program of the helper process that runs jq: it reads requests on its input and writes answers on its output.

A message is a length (8 bytes, big-endian) and as many bytes of JSON. A request is ``[program, text]``; ``text`` is
the JSON array of elements, as a string. An answer is ``{"outputs": text}`` or ``{"error": text}``. This file is run by
its path, so it imports nothing of the project.
"""

from __future__ import annotations

import json
import resource
import struct
import sys
from functools import lru_cache
from typing import Any, BinaryIO

import jq

_LENGTH = struct.Struct(">Q")


@lru_cache(maxsize=64)
def compiled(program: str) -> Any:
    """``program`` over all elements of an array, the outputs of each in an array of their own."""
    jq.compile(program)  # on its own first: what is no program must not become one by the brackets around it
    return jq.compile(f"map([{program}\n])")


def answer(program: str, text: str) -> dict[str, str]:
    """The answer to one request."""
    try:
        return {"outputs": compiled(program).input_text(text).text()}
    except (ValueError, MemoryError) as error:
        return {"error": str(error) or "out of memory"}


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
    serve(sys.stdin.buffer, sys.stdout.buffer)
