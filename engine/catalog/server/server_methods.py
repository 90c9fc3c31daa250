"""Calls about the server itself: its version, who asks, and how fast the line is."""

from __future__ import annotations

import importlib.metadata
import os
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

from ...limits import MIB
from .messages import cloud
from .methods import Call, Kind, Method, ProtocolError, Status

FEATURES: Final = ("per_segment_index_values",)
"""What ``Version`` tells: queries may come with index values of their own for each segment."""
_PACKAGE: Final = "chunkmill"
_NUMBERS: Final = re.compile(r"\d+")
_OF_WRITERS: Final = "catalog:write:"
"""How capabilities begin that are told to those who may write."""
_MOST_TESTED: Final = 32 * MIB


def server_methods(capabilities: Sequence[str]) -> tuple[Method, ...]:
    """The methods; ``capabilities`` are told to each who asks, and may use them."""

    def who_am_i(request: Any, call: Call) -> Any:
        del request
        told = [one for one in capabilities if call.can_write or not one.startswith(_OF_WRITERS)]
        return cloud("WhoAmIResponse")(
            can_read=call.can_read, can_write=call.can_write, capabilities={"capabilities": told}
        )

    return (
        Method.named("Version", Kind.UNARY, _version),
        Method.named("WhoAmI", Kind.UNARY, who_am_i),
        Method.named("DoBandwidthTest", Kind.STREAM, _bandwidth),
    )


def _version(request: Any, call: Call) -> Any:
    del request, call
    return _own_version()


@cache
def _own_version() -> Any:
    """Read once: the file that tells it takes more to be found and parsed than all else of a call."""
    version = importlib.metadata.version(_PACKAGE)
    major, minor, patch = (int(part) for part in (*_NUMBERS.findall(version), "0", "0")[:3])
    build = {"crate_name": _PACKAGE, "version": {"major": major, "minor": minor, "patch": patch}}
    return cloud("VersionResponse")(build_info=build, version=f"{_PACKAGE} {version}", features=FEATURES)


def _bandwidth(request: Any, call: Call) -> Iterator[Any]:
    left = request.num_bytes
    if left > _MOST_TESTED:
        raise ProtocolError(Status.INVALID_ARGUMENT, f"num_bytes ({left}) exceeds the maximum of {_MOST_TESTED}")
    noise = os.urandom(min(left, MIB))
    while left:
        call.check()
        some = noise[:left]
        left -= len(some)
        yield cloud("DoBandwidthTestResponse")(payload=some)
