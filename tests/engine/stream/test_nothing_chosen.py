"""A range, a topic or a content that chooses nothing is warned of, wherever it is given, and names what was meant."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill.engine.data_sources.options import Request
from chunkmill.engine.data_sources.reading import ChunkFrameReader, ValueReader, value_row_schema
from chunkmill.engine.errors import ReadWarning, UnmatchedWarning, UsageError
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.readers import FORMATS, McapReader, ParquetReader, RrdReader

from tests.readers.mcap.mcap_bytes import channel, chunk_of, mcap, message, schema, written

IMU = "/nissan/gps/duro/imu"


@pytest.fixture(scope="module")
def demo(data: Path) -> Path:
    return data / "demo.mcap"


@pytest.fixture(scope="module")
def rrd(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nothing") / "drive.rrd"
    McapReader(demo).stream().write_rrd(path, application_id="a", recording_id="r", executor="inline")
    return path


@pytest.fixture(scope="module")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nothing") / "x.parquet"
    pq.write_table(pa.table({"arm_x": [1, 2], "arm_y": [1, 2], "speed": [1.0, 2.0]}), path)
    return path


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """An MCAP without a summary."""
    run = chunk_of([message(1, t, b'{"a": 1}') for t in (3, 6)])
    return written(tmp_path, mcap([schema(1, "T", "jsonschema", b"{}"), channel(1, "/imu", "json", 1), run]))


def run(stream: LazyChunkStream) -> list[Any]:
    return stream.to_chunks(executor="inline")


@pytest.mark.parametrize("terminal", ["to_chunks", "iterate", "write", "collect", "to_spark"])
def test_content(demo: Path, rrd: Path, parquet: Path, tmp_path: Path, terminal: str) -> None:
    ends: dict[str, Callable[[LazyChunkStream], Any]] = {
        "to_chunks": run,
        "iterate": list,
        "write": lambda s: s.write_rrd(tmp_path / "o.rrd", application_id="a", recording_id="r", executor="inline"),
        "collect": lambda s: s.collect(executor="inline"),
        "to_spark": lambda s: s._plan("spark"),
    }
    wanted = [(McapReader(demo), f"{IMU}u", IMU), (RrdReader(rrd), "/nissan/gps/duro/im/**", IMU)]
    for reader, content, near in [*wanted, (ParquetReader(parquet), "/arms", "/arm")]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CHUNKMILL_EXECUTOR", "inline")
            with pytest.warns(UnmatchedWarning, match=rf"keeps nothing\. Did you mean {near}\b"):
                ends[terminal](reader.stream().filter(content=content))


def test_what_chooses_something_is_not_warned_of(demo: Path, rrd: Path, parquet: Path) -> None:
    for reader in (McapReader(demo), RrdReader(rrd), ParquetReader(parquet)):
        run(reader.stream().filter(content=["/arm/**", f"{IMU}/**"]))
        run(reader.stream().drop(content="/**"))
        selected, rest = reader.stream().split(content="/nope")
        run(LazyChunkStream.merge(selected, rest))
    assert run(McapReader(demo, end_time_ns=1_769_165_010_000_000_000, include_topic_regex=["imu"]).stream())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"include_topic_regex": ["^/nissan/gps/duro/im$"]}, rf"no topic matches .* Did you mean {IMU}, "),
        ({"exclude_topic_regex": [""]}, "no topic matches '-'"),
        ({"end_time_ns": 5}, "no message is from 0 ns to before 5 ns; the log times of the file are 1,769,"),
        ({"start_time_ns": 2**63}, "no message is from 9,223,372,036,854,775,808 ns on; the log times"),
        ({"start_time_ns": 7, "end_time_ns": 7}, "no message is from 7 ns to before 7 ns: the range is empty"),
        ({"end_time_ns": 0}, "the range is empty"),
    ],
    ids=str,
)
def test_options_of_an_mcap(demo: Path, options: dict[str, Any], words: str) -> None:
    with pytest.warns(ReadWarning, match=words) as caught:
        run(McapReader(demo, **options).stream())
    assert len(caught) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"include_topic_regex": ["^/im$"]}, r"no topic matches '\^/im\$'. Did you mean /imu"),
        ({"start_time_ns": 7}, "no message is from 7 ns on"),
        ({"end_time_ns": 2}, "no message is from 0 ns to before 2 ns"),
    ],
    ids=str,
)
def test_options_of_an_mcap_without_a_summary(bare: Path, options: dict[str, Any], words: str) -> None:
    with pytest.warns(ReadWarning, match=words) as caught:
        run(McapReader(bare, **options).stream())
    assert len(caught) == 1


def test_times_of_a_frame(demo: Path, rrd: Path) -> None:
    with pytest.warns(ReadWarning, match="there are no rows before 5 on timeline 'log_time'") as caught:
        assert McapReader(demo).values().to_arrow(IMU, index="log_time", end=5, executor="inline").num_rows == 0
    assert len(caught) == 1
    with pytest.raises(UsageError, match=f"no rows on {IMU} before 5. Entity paths begin"):
        RrdReader(rrd).values().to_arrow(IMU, index="log_time", end=5, executor="inline")
    with pytest.warns(ReadWarning, match="there are no rows from 9 before 9"):
        assert McapReader(demo).frame(IMU, start=9, end=9).empty


def test_entities_of_a_frame(demo: Path, rrd: Path, parquet: Path) -> None:
    for reader, content, near in (
        (McapReader(demo), f"{IMU}u", IMU),
        (RrdReader(rrd), f"{IMU}u/**", IMU),
        (ParquetReader(parquet), "/arn", "/arm"),
    ):
        with pytest.raises(UsageError, match=rf"no rows on .* Did you mean {near}\b"):
            reader.frame(content, executor="inline")


def planned(paths: list[Path], kind: str | None = None, **options: str) -> list[Any]:
    first, *more = map(str, paths)
    given = {"path": first, "paths": str(more).replace("'", '"'), **options}
    request = Request.of(None if kind is None else FORMATS[kind], given)
    if "topic" in options or "contents" in options:
        return ValueReader(request, value_row_schema(request)).partitions()
    return ChunkFrameReader(request).partitions()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"content": f"{IMU}u"}, f"keeps nothing. Did you mean {IMU}, .* The same applies to 1 more recording"),
        ({"topic": IMU, "end": "5"}, "no message is from 0 ns to before 5 ns.* The same applies to 1 more recording"),
        ({"end_time_ns": "5"}, "no message is from 0 ns to before 5 ns.* The same applies to 1 more recording"),
        ({"topics": "/imu"}, r"no topic matches '\^/imu\$'.* The same applies to 1 more recording"),
    ],
    ids=str,
)
def test_data_sources_of_spark(demo: Path, tmp_path: Path, bare: Path, options: dict[str, str], words: str) -> None:
    again = tmp_path / "again.mcap"
    again.write_bytes(demo.read_bytes())
    with pytest.warns(ReadWarning, match=words) as caught:
        planned([demo, again], **options)
    assert len(caught) == 1
    if "topics" not in options:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            planned([demo, bare], **{k: v.replace(f"{IMU}u", "/imu").replace(IMU, "/imu") for k, v in options.items()})
