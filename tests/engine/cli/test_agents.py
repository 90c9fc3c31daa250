"""``chunkmill mcp``: an agent's calls, by the official client."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill import CatalogClient, Chunk, LazyChunkStream
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.cli.agents import LakeTools, lake_server

mcp = pytest.importorskip("mcp")

SPEED = "/car:speed"
IMU = "/imu:acceleration"
RATE = 50


def drive(lake: CatalogClient, folder: Path, name: str, seconds: int, brakes: bool, camera: bool) -> None:
    """A drive of so many seconds. One that brakes hard slows down by 10 m/s in its last second."""
    times = pa.array(np.arange(seconds * RATE) * (1_000_000_000 // RATE), pa.timestamp("ns"))
    speed = np.full(len(times), 20.0)
    speed[-RATE:] -= np.linspace(0, 10, RATE) if brakes else 0
    acceleration = np.gradient(speed, 1 / RATE)

    def chunk(entity: str, component: str, values: Any) -> Chunk:
        lists = pa.array([[value] for value in values])
        return Chunk.build(entity, {"time": times[: len(lists)]}, [(ComponentDescriptor(component), lists)])

    chunks = [chunk("/car", "speed", speed.tolist()), chunk("/imu", "acceleration", acceleration.tolist())]
    if camera:
        chunks.append(chunk("/camera", "blob", [b"\xff" * 5000] * 3))
    path = folder / f"{name}.rrd"
    LazyChunkStream.from_iter(chunks).write_rrd(path, application_id="t", recording_id=name, executor="inline")
    lake.get_dataset("drives").register(str(path)).wait()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("agents")
    client = CatalogClient(folder / "lake")
    client.create_dataset("drives")
    drive(client, folder, "calm", 4, False, True)
    drive(client, folder, "hard", 3, True, True)
    drive(client, folder, "blind", 2, False, False)
    labels = client.create_table("labels", pa.schema([("drive", pa.string()), ("good", pa.bool_())]))
    labels.append(pa.table({"drive": ["calm", "hard"], "good": [True, False]}))
    yield folder / "lake"


def calls(lake: Path, *wanted: tuple[str, dict[str, Any]], rows: int = 1000, size: int = 200_000) -> list[Any]:
    """The answers to calls: JSON, the bytes of a picture, or the text of an error."""

    async def answers() -> list[Any]:
        tools = LakeTools(CatalogClient(lake), rows, size)
        async with mcp.Client(lake_server(tools)) as client:
            return [read(await client.call_tool(name, arguments)) for name, arguments in wanted]

    return asyncio.run(answers())


def read(result: Any) -> Any:
    (content,) = result.content
    if result.is_error:
        return content.text
    return json.loads(content.text) if content.type == "text" else base64.b64decode(content.data)


def test_the_lake_is_listed_and_described(lake: Path) -> None:
    entries, drives, labels = calls(
        lake, ("list_entries", {}), ("describe", {"name": "drives"}), ("describe", {"name": "labels"})
    )
    assert entries["entries"] == [
        {"name": "drives", "kind": "dataset", "segments": 3},
        {"name": "labels", "kind": "table", "rows": 2},
    ]
    assert drives["indexes"] == {
        "time": {"start": "1970-01-01T00:00:00.000000000", "end": "1970-01-01T00:00:03.980000000"}
    }
    assert drives["columns"] == {
        "/camera:blob": "list<item: binary>",
        IMU: "list<item: double>",
        SPEED: "list<item: double>",
    }
    assert labels["columns"] == {"drive": "string", "good": "bool"}


def test_four_questions_are_answered(lake: Path) -> None:
    """Which drives brake hard, the rate of an entity in each, drives without a camera, and a plot of the longest."""
    source = "reader('drives', index => 'time', contents => '/imu')"
    hard, rates, blind, longest = calls(
        lake,
        ("sql", {"statement": f'SELECT DISTINCT rerun_segment_id AS drive FROM {source} WHERE "{IMU}"[1] < -5'}),
        (
            "sql",
            {
                "statement": f"SELECT rerun_segment_id AS drive, (count(*) - 1) * 1e9 / "
                f"(max(CAST(time AS BIGINT)) - min(CAST(time AS BIGINT))) AS rate FROM {source} "
                f'WHERE "{IMU}" IS NOT NULL GROUP BY 1 ORDER BY 1'
            },
        ),
        (
            "sql",
            {
                "statement": "SELECT rerun_segment_id AS drive FROM drives WHERE rerun_segment_id NOT IN (SELECT "
                "rerun_segment_id FROM reader('drives', index => 'time', contents => '/camera'))"
            },
        ),
        (
            "sql",
            {
                "statement": "SELECT rerun_segment_id AS drive FROM drives "
                'ORDER BY CAST("time:end" AS BIGINT) - CAST("time:start" AS BIGINT) DESC LIMIT 1'
            },
        ),
    )
    assert hard == {"rows": [{"drive": "hard"}]}
    assert rates["rows"] == [{"drive": name, "rate": float(RATE)} for name in ("blind", "calm", "hard")]
    assert blind == {"rows": [{"drive": "blind"}]}
    segment = longest["rows"][0]["drive"]
    assert segment == "calm"
    (picture,) = calls(lake, ("plot", {"dataset": "drives", "segment": segment, "column": SPEED, "index": "time"}))
    pillow = pytest.importorskip("PIL.Image")
    with pillow.open(io.BytesIO(picture)) as image:
        assert image.format == "PNG" and image.size == (1000, 400)


def test_answers_are_cut_and_say_so(lake: Path) -> None:
    rows = {"dataset": "drives", "index": "time", "segments": ["calm"], "contents": ["/car"]}
    few, small, blob, where, segments = calls(
        lake,
        ("rows", {**rows, "limit": 5000}),
        ("rows", {**rows, "limit": 3}),
        ("rows", {**rows, "contents": ["/camera"], "limit": 1}),
        ("rows", {**rows, "where": f'"{SPEED}"[1] > 100'}),
        ("segments", {"dataset": "drives", "where": "rerun_segment_id = 'hard'"}),
        rows=10,
    )
    assert len(few["rows"]) == 10 and "more than 10 rows" in few["cut"]
    assert small["rows"][1] == {"rerun_segment_id": "calm", "time": "1970-01-01T00:00:00.020000000", SPEED: [20.0]}
    assert blob["rows"][0]["/camera:blob"] == ["5,000 bytes"]
    assert where == {"rows": []}
    assert [row["rerun_segment_id"] for row in segments["rows"]] == ["hard"] and "cut" not in segments
    (limited,) = calls(lake, ("rows", {**rows, "limit": 500}), size=1000)
    assert 0 < len(limited["rows"]) < 20 and "bytes" in limited["cut"]


@pytest.mark.parametrize(
    ("call", "arguments", "error"),
    [
        ("describe", {"name": "../../etc/passwd"}, "No dataset found"),
        ("rows", {"dataset": "drives", "index": "nothing"}, "nothing"),
        ("rows", {"dataset": "drives", "index": "time", "columns": ["/car:sped"]}, "no column '/car:sped'"),
        ("sql", {"statement": "COPY labels TO 'OUT.csv'"}, ""),
        ("sql", {"statement": "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'"}, ""),
        ("sql", {"statement": "SELECT * FROM '/etc/passwd'"}, ""),
        ("sql", {"statement": "INSERT INTO labels VALUES ('x', true)"}, ""),
        ("sql", {"statement": "DROP TABLE labels"}, ""),
        ("plot", {"dataset": "drives", "segment": "calm", "column": "/car:sped", "index": "time"}, "no column"),
        ("plot", {"dataset": "drives", "segment": "calm", "column": "/camera:blob", "index": "time"}, "not numbers"),
    ],
)
def test_nothing_is_written_and_nothing_else_is_named(
    lake: Path, tmp_path: Path, call: str, arguments: dict[str, Any], error: str
) -> None:
    out = tmp_path / "out.csv"
    arguments = {
        name: value.replace("OUT.csv", str(out)) if isinstance(value, str) else value
        for name, value in arguments.items()
    }
    text, labels = calls(lake, (call, arguments), ("sql", {"statement": "SELECT count(*) AS n FROM labels"}))
    assert isinstance(text, str) and error in text
    assert not out.exists() and labels == {"rows": [{"n": 2}]}


@pytest.mark.process
def test_the_command_talks_over_its_standard_streams(lake: Path) -> None:
    async def listed() -> Any:
        command = mcp.StdioServerParameters(command=sys.executable, args=["-m", "chunkmill", "mcp", str(lake)])
        async with mcp.Client(command) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            return tools, read(await client.call_tool("list_entries", {}))

    tools, entries = asyncio.run(listed())
    assert tools == ["list_entries", "describe", "segments", "rows", "sql", "plot"]
    assert [entry["name"] for entry in entries["entries"]] == ["drives", "labels"]
