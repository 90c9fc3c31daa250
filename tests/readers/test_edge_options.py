"""Edge values of every option that is a number: a typed error when it is given, or the rows that it means."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.data_sources.options import Request
from chunkmill.engine.data_sources.reading import ChunkFrameReader
from chunkmill.engine.data_sources.sources import DatasetRequest
from chunkmill.engine.errors import ChunkmillError, UsageError
from chunkmill.readers import FORMATS, Format, McapReader
from chunkmill.readers.recording_file import Option
from click.testing import CliRunner
from mcap.writer import Writer

EDGES = (0, -1, 5, 2**63 - 1, 2**63, 2**64 - 1, 2**64)
TIMES = (0, 5, 2**63 - 1, 2**63, 2**64 - 1)
SHOWN = [min(t, 2**63 - 1) for t in TIMES]

pytestmark = pytest.mark.filterwarnings("ignore::chunkmill.engine.errors.ReadWarning")


def is_number(one: Option) -> bool:
    try:
        return isinstance(one.from_text("5"), int) and one.switch is None
    except (UsageError, AssertionError):
        return False


NUMBERS = [(row, one) for row in FORMATS.values() for one in row.options if is_number(one)]
RANGES = list(itertools.product((None, *EDGES), repeat=2))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "x.mcap"
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        channel = writer.register_channel("/j", "json", 0)
        for time in TIMES:
            writer.add_message(channel, time, b'{"a": 1}', time)
        writer.finish()
    return path


def rows_of(row: Format, path: Path, given: dict[str, Any]) -> int:
    chunks = row.open(path, given).stream().filter(content="/j").to_chunks(executor="inline")
    return sum(chunk.num_rows for chunk in chunks if not chunk.is_static)


def inside(start: int | None, end: int | None, times: Any = TIMES) -> int:
    return sum((start is None or t >= start) and (end is None or t < end) for t in times)


def test_the_table_has_numbers() -> None:
    assert {one.name for _, one in NUMBERS} >= {"start_time_ns", "end_time_ns", "timestamp_offset_ns", "episode"}


@pytest.mark.parametrize(("row", "one"), NUMBERS, ids=lambda v: v.name)
@pytest.mark.parametrize("value", EDGES)
def test_every_number_of_a_format(row: Format, one: Option, value: int, path: Path) -> None:
    try:
        given = one.from_text(str(value))
    except UsageError:
        assert value < 0 or value >= 2**63 or (one.name == "gop_size" and not 0 < value < 2**31)
        return
    if row.name != "mcap":
        with pytest.raises(ChunkmillError):
            row.open(path.parent / "none", {one.name: given}).stream().to_chunks(executor="inline")
        return
    expected = {"start_time_ns": inside(value, None), "end_time_ns": inside(None, value)}.get(one.name, len(TIMES))
    assert rows_of(row, path, {one.name: given}) == expected


@pytest.mark.parametrize(("start", "end"), RANGES, ids=str)
def test_ranges_of_readers_and_frames(path: Path, start: int | None, end: int | None) -> None:
    given = {"start_time_ns": start, "end_time_ns": end}
    is_whole = all(t is None or 0 <= t < 2**64 for t in (start, end))
    is_range = start is None or end is None or start <= end
    try:
        found = rows_of(FORMATS["mcap"], path, given)
        assert found == inside(start, end) and is_whole and is_range
    except OverflowError:
        assert not is_whole
    except UsageError:
        assert not is_range
    frame = McapReader(path).frame("/j", columns=["log_time"], start=start, end=end)
    assert len(frame) == inside(start, end, SHOWN)


@pytest.mark.parametrize("name", ["start", "end"])
@pytest.mark.parametrize("text", [*map(str, EDGES), "--5", "-", "", "5e3", "0x10"])
def test_times_of_the_sources_of_spark(path: Path, name: str, text: str) -> None:
    for options in ({"topic": "/j"}, {"index": "log_time"}):
        given = {"path": str(path), name: text, **options}
        try:
            if "topic" in options:
                frame = Request.of(FORMATS["mcap"], given).frame
                assert frame is not None and getattr(frame, name) == int(text)
            else:
                assert getattr(DatasetRequest.of(given), name) == int(text)
        except UsageError:
            assert not text.removeprefix("-").isdecimal()


@pytest.mark.parametrize("value", EDGES)
@pytest.mark.parametrize("name", ["start_time_ns", "end_time_ns"])
def test_log_times_of_the_sources_of_spark(path: Path, name: str, value: int) -> None:
    given = {"path": str(path), name: str(value), "content": "/j", "columns": "num_rows,is_static"}
    try:
        reader = ChunkFrameReader(Request.of(FORMATS["mcap"], given))
    except UsageError:
        assert not 0 <= value < 2**64
        return
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    bounds = (value, None) if name == "start_time_ns" else (None, value)
    assert sum(row["num_rows"] for batch in batches for row in batch.to_pylist() if not row["is_static"]) == inside(
        *bounds
    )


@pytest.mark.parametrize("value", EDGES)
@pytest.mark.parametrize("flag", ["--start", "--end", "--start-time-ns", "--end-time-ns"])
def test_times_of_convert(path: Path, tmp_path: Path, flag: str, value: int) -> None:
    arguments = ["convert", str(path), "-o", str(tmp_path / "o.rrd"), f"{flag}={value}", "--executor", "inline"]
    done = CliRunner().invoke(commands, arguments)
    assert not done.exception or isinstance(done.exception, SystemExit), done.output
    times = SHOWN if flag in ("--start", "--end") else TIMES
    bounds = (value, None) if flag.startswith("--start") else (None, value)
    if flag.endswith("ns") and not 0 <= value < 2**64:
        assert done.exit_code == 2
    elif inside(*bounds, times):
        assert done.exit_code == 0, done.output
