"""``chunkmill mcp``: calls by the official client, to a server in this process and to the command."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine.agents import CallLimits, lake_server
from chunkmill.engine.agents.tools import TOOLS
from chunkmill.engine.errors import MissingExtraError
from lake_of_drives import IMU, RATES, SPEED, make

mcp, anyio = pytest.importorskip("mcp"), pytest.importorskip("anyio")
pytestmark = pytest.mark.process

Talk = Callable[[Any], Awaitable[Any]]
ENDLESS = "SELECT max(a.value + b.value) FROM generate_series(1, 10000000) a, generate_series(1, 10000000) b"
LARGE = "SELECT length(repeat('x', 2000000000)) AS n"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("agents")
    make(folder)
    return folder / "lake"


def talk(server: Any, script: Talk) -> Any:
    """What a script gets that talks to a server, or to a command."""

    async def run() -> Any:
        async with mcp.Client(server) as client:
            return await script(client)

    return anyio.run(run)


def read(result: Any) -> Any:
    """An answer: JSON, the bytes of a picture, or the text of an error."""
    (content,) = result.content
    if result.is_error:
        return content.text
    return json.loads(content.text) if content.type == "text" else base64.b64decode(content.data)


def command(lake: Path | str, *options: str) -> Any:
    arguments = ["-m", "chunkmill", "mcp", str(lake), *options]
    return mcp.StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))


def test_the_four_questions_of_an_agent_are_answered_by_the_command(lake: Path) -> None:
    async def script(client: Any) -> Any:
        async def ask(tool: str, **arguments: Any) -> Any:
            return read(await client.call_tool(tool, arguments))

        hard = await ask("find", dataset="drives", condition=f"{IMU} < -5", window="1s")
        rates = await ask("rates", dataset="drives", contents=["/imu"])
        blind = await ask(
            "sql",
            statement="SELECT rerun_segment_id FROM drives WHERE rerun_segment_id NOT IN (SELECT rerun_segment_id "
            "FROM reader('drives', index => 'time', contents => '/camera/**'))",
        )
        longest = await ask(
            "sql",
            statement='SELECT rerun_segment_id FROM drives ORDER BY "time:end" - "time:start" DESC LIMIT 1',
        )
        drive = longest["rows"][0]["rerun_segment_id"]
        return hard, rates, blind, drive, await ask("plot", dataset="drives", segment=drive, column=SPEED)

    hard, rates, blind, drive, picture = talk(command(lake), script)
    assert [event["rerun_segment_id"] for event in hard["rows"]] == ["hard"]
    assert {row["rerun_segment_id"]: row["rate_hz"] for row in rates["rows"]} == RATES
    assert blind["rows"] == [{"rerun_segment_id": "blind"}]
    assert drive == "calm"
    with pytest.importorskip("PIL.Image").open(io.BytesIO(picture)) as image:
        assert image.format == "PNG"


def test_the_command_passes_every_kind_of_call(lake: Path) -> None:
    calls: dict[str, dict[str, Any]] = {
        "list_entries": {},
        "describe": {"name": "drives"},
        "segments": {"dataset": "drives", "limit": 1},
        "rates": {"dataset": "drives"},
        "rows": {"dataset": "drives", "contents": ["/car"], "limit": 1},
        "sql": {"statement": "SELECT 1 AS one"},
        "find": {"dataset": "drives", "condition": f"{IMU} < -5"},
        "plot": {"dataset": "drives", "segment": "calm", "column": SPEED},
    }
    assert tuple(calls) == TOOLS

    async def script(client: Any) -> None:
        assert client.server_info.name == "chunkmill" and "list_entries" in client.instructions
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tuple(tools) == TOOLS
        for tool in tools.values():
            assert tool.annotations.read_only_hint and not tool.annotations.open_world_hint
            assert tool.input_schema["additionalProperties"] is False
            described = tool.description.partition("Args:")[2]
            assert all(f"{name}:" in described for name in tool.input_schema["properties"]), tool.name
        assert "dataset" in tools["rows"].input_schema["required"]
        for name, arguments in calls.items():
            result = await client.call_tool(name, arguments)
            assert not result.is_error, result
            assert [content.type for content in result.content] == ["image" if name == "plot" else "text"]
        assert (await client.list_resources()).resources == [] and (await client.list_prompts()).prompts == []
        for name, wrong, words in (
            ("rows", {"dataset": "drives", "segment": "calm"}, "segment"),
            ("rows", {}, "dataset"),
            ("rows", {"dataset": 5}, "string"),
            ("rows", {"dataset": "drives", "limit": -1}, "at least 1"),
            ("sql", {"statement": "DROP TABLE labels"}, "only read"),
            ("sql", {"statement": "x" * 300_000}, "200,000 bytes"),
            ("write", {}, "write"),
        ):
            result = await client.call_tool(name, wrong)
            assert result.is_error and words in read(result), result

    talk(command(lake), script)


def test_a_call_that_takes_too_much_is_stopped_and_the_next_one_is_answered(lake: Path) -> None:
    async def script(client: Any) -> None:
        late = read(await client.call_tool("sql", {"statement": ENDLESS}))
        assert "longer than 2 s" in late
        large = read(await client.call_tool("sql", {"statement": LARGE}))
        assert "memory" in large
        assert read(await client.call_tool("sql", {"statement": "SELECT 1 AS one"})) == {"rows": [{"one": 1}]}

    talk(lake_server(str(lake), CallLimits(seconds=2, memory=1 << 30)), script)


def test_a_call_that_is_cancelled_stops_its_process(lake: Path) -> None:
    async def script(client: Any) -> float:
        await client.call_tool("list_entries", {})
        with anyio.move_on_after(1):
            await client.call_tool("sql", {"statement": ENDLESS})
        began = time.monotonic()
        assert read(await client.call_tool("sql", {"statement": "SELECT 1 AS one"})) == {"rows": [{"one": 1}]}
        return time.monotonic() - began

    assert talk(lake_server(str(lake), CallLimits(seconds=100)), script) < 60


def test_nothing_but_messages_is_on_standard_output(lake: Path) -> None:
    def message(number: int, method: str, **params: Any) -> str:
        return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})

    about = {"name": "t", "version": "1"}
    asked = [
        message(1, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=about),
        '{"jsonrpc": "2.0", "method": "notifications/initialized"}',
        "this is no message",
        message(2, "tools/call", name="find", arguments={"dataset": "drives", "condition": f"{IMU} < -5"}),
        message(3, "tools/call", name="sql", arguments={"statement": LARGE}),
        message(4, "tools/call", name="plot", arguments={"dataset": "drives", "segment": "calm", "column": SPEED}),
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "chunkmill", "mcp", str(lake), "--max-memory", "1GiB"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        process.stdin.write("\n".join(asked) + "\n")
        process.stdin.flush()
        answers: dict[int, Any] = {}
        while answers.keys() < {1, 2, 3, 4}:
            answer = json.loads(process.stdout.readline())
            if answer.get("id") is not None:
                answers[answer["id"]] = answer["result"]
        process.stdin.close()
        assert process.stdout.read() == "" and process.wait(30) == 0
    assert answers[1]["serverInfo"]["name"] == "chunkmill" and answers[3]["isError"]
    assert "notes" in answers[2]["content"][0]["text"] and answers[4]["content"][0]["type"] == "image"


def test_an_end_of_the_command_ends_its_process(lake: Path) -> None:
    async def script(client: Any) -> list[int]:
        await client.call_tool("list_entries", {})
        return workers(lake)

    (worker,) = talk(command(lake), script)
    deadline = time.monotonic() + 20
    while Path(f"/proc/{worker}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not workers(lake)


def workers(lake: Path) -> list[int]:
    """The processes that answer calls about a lake."""
    if not Path("/proc/self/cmdline").exists():
        pytest.skip("this system does not list processes as Linux does")
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"chunkmill.engine.agents.worker" in words and str(lake).encode() in words:
            found.append(int(path.parent.name))
    return found


def test_without_the_package_the_extra_is_named(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[mcp\]'"):
        lake_server(str(lake), CallLimits())
