"""The executor that is asked for, and ``auto``, which looks at what there is to do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from chunkmill.engine import LazyChunkStream, UsageError
from chunkmill.engine.execution import executor_for, executor_name, is_auto, stage
from chunkmill.readers import McapReader

MB = 1_000_000


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "_has_session", lambda: False)


@pytest.mark.parametrize(
    ("given", "variable", "name"),
    [
        (None, None, "spark"),
        (None, "inline", "inline"),
        ("inline", "spark", "inline"),
        ("auto", None, "spark"),
        (None, "auto", "spark"),
    ],
)
def test_an_argument_beats_the_environment(
    given: str | None, variable: str | None, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CHUNKMILL_EXECUTOR", raising=False)
    if variable is not None:
        monkeypatch.setenv("CHUNKMILL_EXECUTOR", variable)
    assert executor_name(given) == name, "and auto is Spark, where nobody says how much there is to do"
    assert is_auto(given) == ("auto" in (given, variable))


@pytest.mark.parametrize(
    ("num_bytes", "own", "name"),
    [
        (0, False, "inline"),
        (60 * MB, False, "inline"),
        (70 * MB, False, "spark"),
        (12 * MB, True, "inline"),
        (20 * MB, True, "spark"),
        (None, False, "spark"),
    ],
)
@pytest.mark.usefixtures("no_session")
def test_auto_looks_at_the_input(num_bytes: int | None, own: bool, name: str) -> None:
    assert executor_for("auto", lambda: num_bytes, own_functions=own) == name


def test_where_spark_runs_less_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", sys)
    monkeypatch.setattr(stage, "_has_session", lambda: True)
    assert [executor_for("auto", lambda n=n: n) for n in (4 * MB, 6 * MB)] == ["inline", "spark"]


def test_nobody_is_asked_for_bytes_where_it_is_said() -> None:
    def asked() -> int:
        raise AssertionError

    assert executor_for("inline", asked) == "inline" and executor_for("spark", asked) == "spark"
    with pytest.raises(UsageError, match="unknown executor 'dask'"):
        executor_for("dask", asked)


@pytest.mark.usefixtures("no_session")
@pytest.mark.parametrize("way", ["argument", "environment"])
def test_a_small_file_is_written_here(way: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHUNKMILL_EXECUTOR", "auto")
    given = {"executor": "auto"} if way == "argument" else {}
    if way == "argument":
        monkeypatch.delenv("CHUNKMILL_EXECUTOR")
    stream = McapReader(data / "mcap" / "rosbag2__talker.mcap").stream
    seen: list[int] = []

    def note(chunk):  # type: ignore[no-untyped-def]
        seen.append(chunk.num_rows)
        return chunk

    report = stream().map(note).write_rrd(tmp_path / "a.rrd", application_id="a", recording_id="r", **given)
    assert report.executor == "inline" and seen, "a function of a task of Spark's would not have reached the list"
    assert len(stream().to_chunks(**given)) == len(list(stream())) == len(seen)
    assert len(stream().collect(**given)) > 0
    assert stream().to_arrow("/topic", **given).num_rows == 10


def test_what_reads_no_file_is_for_spark(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from chunkmill.engine.stream import sink_of
    from chunkmill.engine.stream.plan import calls_functions, local_bytes

    file = data / "mcap" / "rosbag2__talker.mcap"
    stream = McapReader(file).stream()
    assert local_bytes([sink_of(stream)]) == file.stat().st_size
    assert local_bytes([sink_of(LazyChunkStream.merge(McapReader(file).stream(), McapReader(file).stream()))]) == (
        file.stat().st_size
    ), "a file that is read twice counts once"
    assert local_bytes([sink_of(LazyChunkStream.from_iter(iter([])))]) is None
    assert calls_functions(sink_of(McapReader(file).stream().map(lambda chunk: chunk).filter(is_static=True)))
    assert not calls_functions(sink_of(stream))
