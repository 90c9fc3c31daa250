"""The server of a lake's tools, with the package ``mcp``. A separate process does the work, and may be killed."""

from __future__ import annotations

import base64
import inspect
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from ..errors import MissingExtraError, extra_command
from ..units import size
from .tools import TOOLS, LakeTools

if TYPE_CHECKING:
    from anyio.abc import Process
    from anyio.streams.buffered import BufferedByteReceiveStream
    from mcp.server import MCPServer

_ABOUT: Final = (
    "A lake of robot recordings. A dataset holds segments, one for each recording (drive, episode), with columns such "
    "as '/entity:Archetype:component' along indexes (timelines); a table holds rows. Begin with list_entries and "
    "describe. Values of components are lists. All tools read; none writes. A shortened answer has 'cut', which "
    "explains how to get the rest."
)
_MOST_ASKED: Final = 200_000
"""The most bytes of the arguments of a call."""
_MOST_PICTURE: Final = 4 << 20
_START_SECONDS: Final = 120


@dataclass(frozen=True)
class CallLimits:
    """The limits of one call: rows and bytes of its answer, seconds, and bytes of memory."""

    rows: int = 1_000
    num_bytes: int = 100_000
    seconds: int = 50
    memory: int = 2 << 30


class WorkerProcess:
    """The process that answers calls, one at a time. If it was killed, the next call starts it again."""

    def __init__(self, lake: str, limits: CallLimits) -> None:
        import anyio

        self._lake = lake
        self._limits = limits
        self._lock = anyio.Lock()
        self._process: Process | None = None
        self._answers: BufferedByteReceiveStream | None = None

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The answer to a call. If the call is cancelled or takes too long, the process is killed."""
        import anyio

        line = json.dumps({"tool": tool, "arguments": arguments}).encode() + b"\n"
        if len(line) > _MOST_ASKED:
            return {"error": f"the arguments have more than {_MOST_ASKED:,} bytes."}
        async with self._lock:
            is_done, seconds = False, _START_SECONDS
            try:
                if self._process is None or self._process.returncode is not None:
                    await self.stop()
                    with anyio.fail_after(seconds):
                        await self._start()
                seconds = self._limits.seconds
                with anyio.fail_after(seconds):
                    answer = await self._asked(line)
                is_done = True
                return answer
            except TimeoutError:
                return {"error": f"it took longer than {seconds} s and was stopped. Request less data."}
            except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return {
                    "error": f"the call took more than {size(self._limits.memory)} of memory, or crashed. Request "
                    "less data."
                }
            finally:
                if not is_done:
                    with anyio.CancelScope(shield=True):
                        await self.stop()

    async def _asked(self, line: bytes) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        await self._process.stdin.send(line)
        return await self._answer()

    async def _answer(self) -> dict[str, Any]:
        assert self._answers is not None
        most = 6 * self._limits.num_bytes + _MOST_PICTURE  # a character takes up to six bytes in JSON
        answer: dict[str, Any] = json.loads(await self._answers.receive_until(b"\n", most))
        return answer

    async def _start(self) -> None:
        import anyio
        from anyio.streams.buffered import BufferedByteReceiveStream

        limits = self._limits
        numbers = map(str, (limits.rows, limits.num_bytes, limits.memory, limits.seconds))
        self._process = await anyio.open_process(
            [sys.executable, "-P", "-m", f"{__package__}.worker", self._lake, *numbers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None,
            start_new_session=True,
            env={
                "MALLOC_ARENA_MAX": "4",  # each arena takes 64 MiB of the limited address space
                **os.environ,
                "CHUNKMILL_EXECUTOR": "inline",
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            },
        )
        assert self._process.stdout is not None
        self._answers = BufferedByteReceiveStream(self._process.stdout)
        await self._answer()  # its first answer is "ready"

    async def stop(self) -> None:
        """Kill the process and its children."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            await process.aclose()


def lake_server(lake: str, limits: CallLimits) -> MCPServer[None]:
    """Return the server of a lake's tools. Raises ``MissingExtraError``."""
    try:
        import matplotlib as _  # noqa: F401
        from mcp.server import MCPServer
        from mcp.server.mcpserver import Image
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp.server.mcpserver.tools import Tool
        from mcp.types import ToolAnnotations
    except ImportError as error:
        raise MissingExtraError(
            f"the agent tools need the packages mcp and matplotlib: {error}", hint=extra_command("mcp")
        ) from error
    worker = WorkerProcess(lake, limits)

    def calling(name: str) -> Callable[..., Any]:
        async def call(**arguments: Any) -> Any:
            answer = await worker.call(name, arguments)
            if "error" in answer:
                raise ToolError(answer["error"])
            return Image(data=base64.b64decode(answer["png"]), format="png") if "png" in answer else answer["text"]

        return _like(getattr(LakeTools, name), call, Image if name == "plot" else str)

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        import anyio

        try:
            yield None
        finally:
            with anyio.CancelScope(shield=True):
                await worker.stop()

    annotations = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
    tools = [Tool.from_function(calling(name), annotations=annotations, structured_output=False) for name in TOOLS]
    for tool in tools:  # a misspelt argument is an error
        model = tool.fn_metadata.arg_model
        model.model_config["extra"] = "forbid"
        model.model_rebuild(force=True)
        tool.parameters = model.model_json_schema(by_alias=True)
    return MCPServer(
        "chunkmill",
        version=version("chunkmill"),
        instructions=_ABOUT,
        tools=tools,
        lifespan=lifespan,
        log_level="WARNING",
    )


def _like(method: Callable[..., Any], call: Callable[..., Any], result: Any) -> Callable[..., Any]:
    """Return ``call`` with the name, docstring and parameters of a method, except ``self``."""
    hints = {**get_type_hints(method), "return": result}
    parameters = [
        parameter.replace(annotation=hints[parameter.name])
        for parameter in inspect.signature(method).parameters.values()
        if parameter.name != "self"
    ]
    described: Any = call
    described.__name__ = described.__qualname__ = method.__name__
    described.__doc__ = inspect.getdoc(method)
    described.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters} | {"return": result}
    described.__signature__ = inspect.Signature(parameters, return_annotation=result)
    return call
