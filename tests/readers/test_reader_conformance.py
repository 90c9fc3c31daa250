"""What every format of the registry does alike, and so does one that is made up: the one of the guide for builders."""

from __future__ import annotations

import json
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bag_bytes import recording
from chunkmill.engine import Chunk, ChunkmillError, Ingest, LazyChunkStream, ReadWarning, RecordingStore, UsageError
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.data_sources import register as register_sources
from chunkmill.engine.data_sources.options import Request
from chunkmill.engine.data_sources.reading import chunk_tasks
from chunkmill.engine.pipelines import load_file
from chunkmill.readers import (
    FORMATS,
    FileSource,
    Format,
    McapReader,
    RecordingFile,
    RrdReader,
    all_suffixes,
    checked_options,
    detect_format,
    format_of_name,
    option,
    register,
    unregister,
)
from click.testing import CliRunner, Result
from comparison import cells
from places import REPOSITORY
from rosbag2_making import of_mcap, write_bag
from video_files import video

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GUIDE = REPOSITORY / "docs" / "own_reader.md"
OURS = tuple(FORMATS)
"""The formats that come with chunkmill; the one of the guide is registered by a fixture."""
LINES = [{"t": 1.5 + i / 10, "name": ("speed", "steering")[i % 3 == 0], "value": i * 0.5} for i in range(40)]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(commands, list(map(str, arguments)))


@pytest.fixture(scope="module", autouse=True)
def json_lines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The format of the guide, for as long as these tests run."""
    found = re.search(r"write_text\('''(.*?)'''\)", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    path = tmp_path_factory.mktemp("guide") / "json_lines.py"
    path.write_text(found[1])
    load_file(path)
    yield
    unregister("jsonl")


def make_rrd(path: Path, data: Path) -> None:
    stream = McapReader(data / "demo.mcap").stream().filter(content="/nissan/**")
    stream.write_rrd(path, application_id="a", recording_id="r", executor="inline")


def make_parquet(path: Path, _data: Path) -> None:
    pq.write_table(pa.table({"t": list(range(200)), "arm_x": [i / 2 for i in range(200)]}), path, row_group_size=64)


def make_lerobot(path: Path, _data: Path) -> None:
    (path / "meta").mkdir(parents=True)
    (path / "data" / "chunk-000").mkdir(parents=True)
    features = {"state": {"dtype": "float32", "shape": [1], "names": None}}
    info = {
        "codebase_version": "v2.1",
        "fps": 10,
        "features": features,
        "chunks_size": 1000,
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": None,
    }
    (path / "meta" / "info.json").write_text(json.dumps(info))
    (path / "meta" / "tasks.jsonl").write_text('{"task_index": 0, "task": "pick"}\n')
    (path / "meta" / "episodes.jsonl").write_text('{"episode_index": 0, "tasks": ["pick"], "length": 3}\n')
    columns = {"state": [[0.5], [1.5], [2.5]], "timestamp": [0.0, 0.1, 0.2], "frame_index": [0, 1, 2]}
    table = pa.table({**columns, "episode_index": [0] * 3, "index": [0, 1, 2], "task_index": [0] * 3})
    pq.write_table(table, path / "data" / "chunk-000" / "episode_000000.parquet")


def make_store(path: Path, data: Path) -> None:
    stream = McapReader(data / "mcap" / "rosbag2__cdr_test_0.mcap").stream()
    stream.collect(into=path, application_id="a", recording_id="r", executor="inline")


def make_rosbag2(path: Path, data: Path) -> None:
    kinds, messages = of_mcap(data / "mcap" / "rosbag2__cdr_test_0.mcap")
    write_bag(path, [messages[:2], messages[2:5], messages[5:]], kinds)


def make_hdf5(path: Path, _data: Path) -> None:
    with h5py.File(path, "w") as file:
        file["arm/q"] = [[i / 2, i / 3] for i in range(200)]
        file.attrs["robot"] = "r"


MAKERS: dict[str, Callable[[Path, Path], Any]] = {
    "mcap": lambda path, data: shutil.copy(data / "mcap" / "rosbag2__cdr_test_0.mcap", path),
    "rrd": make_rrd,
    "parquet": make_parquet,
    "lerobot": make_lerobot,
    "store": make_store,
    "bag": lambda path, _data: path.write_bytes(recording("lz4", publishers=1)),
    "rosbag2": make_rosbag2,
    "mp4": lambda path, _data: path.write_bytes(video("h264", tracks=2)),
    "hdf5": make_hdf5,
    "jsonl": lambda path, _data: path.write_text("".join(json.dumps(line) + "\n" for line in LINES)),
}


@pytest.fixture(scope="module", params=[*OURS, "jsonl"])
def file(request: pytest.FixtureRequest, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An input of each format."""
    path = tmp_path_factory.mktemp("drives") / f"drive.{request.param}"
    MAKERS[request.param](path, data)
    return path


def opened(file: Path) -> RecordingFile:
    return detect_format(file).open(file)


def read_splits(file: Path) -> list[Chunk]:
    """The chunks, each split read by itself, the last first, by a work that was sent."""
    from pyspark import cloudpickle

    row = detect_format(file)
    tasks = [
        cloudpickle.loads(cloudpickle.dumps(t)) for t in chunk_tasks([str(file)], Request.of(row, {"path": str(file)}))
    ]
    runs = [list(task.work.run(0)) for task in reversed(tasks)]
    return [chunk for chunks in reversed(runs) for chunk in chunks]


def test_the_name_or_the_content_tells_the_format(file: Path, tmp_path: Path) -> None:
    row = detect_format(file)
    assert row.name == file.suffix[1:] and FORMATS[row.name] is row
    if row.magic and file.is_file():
        shutil.copy(file, tmp_path / "noname")
        assert detect_format(tmp_path / "noname") is row
    for suffix in row.suffixes:
        assert format_of_name(f"drive.v2{suffix.upper()}") is row


def test_every_run_gives_the_same_chunks(file: Path) -> None:
    first = opened(file).stream().to_chunks(executor="inline")
    assert first
    assert cells(opened(file).stream().to_chunks(executor="inline")) == cells(first)
    assert cells(read_splits(file)) == cells(first)


def test_a_filter_gives_what_is_left_of_all(file: Path) -> None:
    everything = opened(file).stream().to_chunks(executor="inline")
    entity = everything[-1].entity_path
    some = opened(file).stream().filter(content=entity).to_chunks(executor="inline")
    assert cells(some) == cells(c for c in everything if c.entity_path == entity)


def test_stores_hold_what_the_stream_gives(file: Path) -> None:
    stores = opened(file).stores()
    assert len([s for s, _ in stores if s is None or s.kind == "recording"]) == 1
    assert cells(stores[0][1].to_chunks(executor="inline")) == cells(opened(file).stream().to_chunks(executor="inline"))


def test_convert_and_verify(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    done = run("convert", file, "-o", out, "--executor", "inline", "--verify")
    assert done.exit_code == 0, done.stderr
    (made,) = out.rglob("*.rrd")
    assert cells(RrdReader(made).stream().to_chunks(executor="inline")) == cells(
        opened(file).stream().to_chunks(executor="inline")
    )


def test_a_folder_is_searched(file: Path, tmp_path: Path) -> None:
    done = run("convert", file.parent, "-o", tmp_path / "out", "--executor", "inline")
    assert done.exit_code == 0, done.stderr
    assert len(list((tmp_path / "out").rglob("*.rrd"))) == 1


def test_inspect(file: Path) -> None:
    row = detect_format(file)
    report = row.inspect(file)
    assert (report.path, report.format) == (str(file), row.name)
    shown = run("inspect", file, "--json")
    assert shown.exit_code == 0, shown.stderr
    assert json.loads(shown.stdout)["format"] == row.name
    assert run("inspect", file).exit_code == 0


def test_check(file: Path, tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text("def pipeline(stream):\n    return stream.drop(content='/none')\n")
    done = run("check", tmp_path / "pipeline.py", file)
    assert done.exit_code == 0, done.stderr
    assert "drop(content='/none')" in done.stdout and "drive" in done.stdout


def test_ingest(file: Path, tmp_path: Path) -> None:
    if detect_format(file).marker:
        return  # a folder does not land as one
    landing = tmp_path / "landing"
    landing.mkdir()
    shutil.copy(file, landing)
    Ingest(landing, into=tmp_path / "lake", settle=0, executor="inline").start(once=True).await_termination()
    (entry,) = RecordingStore.open(tmp_path / "lake")
    assert entry.rows == sum(c.num_rows for c in opened(file).stream().to_chunks(executor="inline"))


@pytest.mark.quick
def test_spark_reads_it(spark: SparkSession, file: Path) -> None:
    register_sources(spark)
    frame = spark.read.format(f"chunkmill.{file.suffix[1:]}").option("payload", "true").load(str(file.parent))
    paths = {row.path for row in frame.select("path").distinct().collect()}
    assert paths == {str(file)} or (file.suffix == ".store" and all(p.startswith(f"{file}/shards/") for p in paths))
    chunks = LazyChunkStream.from_spark(frame).to_chunks(executor="inline")
    assert cells(chunks) == cells(opened(file).stream().to_chunks(executor="inline"))


def test_a_frame_has_a_row_for_each_of_its_rows(spark: SparkSession, file: Path) -> None:
    opened = detect_format(file).open(file)
    rows = sum(chunk.num_rows for chunk in opened.values().to_chunks() if not chunk.is_static)
    frame = opened.frame(index=None)
    assert len(frame) == rows
    on_spark = opened.frame(index=None, executor="spark")
    assert frame.astype(str).equals(on_spark.astype(str))
    [entity, *_] = [chunk.entity_path for chunk in opened.values().to_chunks() if not chunk.is_static]
    one = opened.values().to_arrow(entity)
    assert one.num_rows == int((frame["entity_path"] == entity).sum())
    timeline = one.column_names[0]
    assert opened.frame(entity, index=timeline).index.name == timeline


@pytest.mark.quick
def test_a_pipeline_on_spark_reads_it(spark: SparkSession, file: Path, tmp_path: Path) -> None:
    if file.suffix != ".jsonl":
        return  # theirs have tests of their own
    out = tmp_path / "out.rrd"
    opened(file).stream().write_rrd(out, application_id="a", recording_id="r", executor="spark")
    chunks = RrdReader(out).stream().to_chunks(executor="inline")
    assert cells(chunks) == cells(opened(file).stream().to_chunks(executor="inline"))


def test_what_is_missing_is_said_with_its_path(file: Path, tmp_path: Path) -> None:
    missing = tmp_path / file.name
    done = run("convert", missing, "-o", tmp_path / "out.rrd", "--executor", "inline")
    assert done.exit_code != 0 and "there is no such file" in done.stderr and str(missing) in done.stderr
    assert not (tmp_path / "out.rrd").exists()


@pytest.mark.parametrize("seed", range(6))
def test_damage_is_an_error_of_ours(file: Path, tmp_path: Path, seed: int) -> None:
    """Noise at one place or the other: what comes is an error of the project's, with the file, or chunks."""
    damaged = tmp_path / file.name
    if file.is_dir():
        shutil.copytree(file, damaged)
        victim = sorted(p for p in damaged.rglob("*") if p.is_file())[seed % 4]
    else:
        shutil.copy(file, damaged)
        victim = damaged
    content = bytearray(victim.read_bytes())
    at = len(content) * seed // 6
    content[at : at + 24] = bytes((seed * 37 + i * 91) % 256 for i in range(len(content[at : at + 24])))
    victim.write_bytes(content)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReadWarning)
            opened(damaged).stream().to_chunks(executor="inline")
    except (ChunkmillError, FileNotFoundError) as error:
        said = str(error)
    else:
        said = str(damaged)
    assert "drive" in said


def test_options_of_a_format_are_flags_spark_options_and_arguments(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "drive.jsonl"
    MAKERS["jsonl"](file, data)
    out = tmp_path / "out.rrd"
    assert run("convert", file, "-o", out, "--name", "speed", "--executor", "inline").exit_code == 0
    assert {c.entity_path for c in RrdReader(out).stream().to_chunks(executor="inline")} == {"/speed"}
    row = FORMATS["jsonl"]
    work = chunk_tasks([str(file)], Request.of(row, {"path": str(file), "names": "steering, other"}))
    assert {c.entity_path for task in work for c in task.work.run(0)} == {"/steering"}
    assert checked_options({"name": "speed"}) == checked_options({"names": ["speed"]}) == {"names": ("speed",)}
    assert "--name NAME" in run("ingest", "--help").stdout
    with pytest.raises(UsageError, match="no option 'names'"):
        Request.of(FORMATS["rrd"], {"path": "f", "names": "x"})
    with pytest.raises(TypeError, match="no format has an option 'nmaes'"):
        Ingest(tmp_path / "landing", into=tmp_path / "lake", nmaes=["speed"])


def test_every_option_is_known_everywhere() -> None:
    """What one front knows of a format, the others know too."""
    for row in FORMATS.values():
        for one in row.options:
            assert checked_options({one.name: None}) == {}
            if one.flag is not None:
                for command in ("convert", "ingest"):
                    assert f"{one.flag} " in run(command, "--help").stdout, (command, one.flag)
                assert one.parse is not None, f"{one.name} is a word of the command line, and not of Spark's"
                assert checked_options({one.keyword: None}) == {}
    assert set(all_suffixes()) == {s for row in FORMATS.values() for s in row.suffixes}


def row_faults(row: Format) -> list[str]:
    """What a row of the registry lacks outside of its own file: the checklist of CONTRIBUTING.md."""
    word = row.title.split()[1]
    wanted = [
        (f"spark_names/pyspark_chunkmill_{row.name}.py", f'data_source_of("{row.name}")'),
        ("docs/formats.md", f"`chunkmill.{row.name}`"),
        ("docs/spark.md", f"`chunkmill.{row.name}`"),
        ("docs/ingest.md", word),
        ("README.md", f"\n| {word}"),
        *(("docs/formats.md", f"`{suffix}`") for suffix in row.suffixes),
    ]
    faults = [] if row.name in MAKERS else [f"tests/readers/test_reader_conformance.py: no maker {row.name!r}"]
    for name, text in wanted:
        path = REPOSITORY / name
        if not path.exists() or text not in path.read_text(encoding="utf-8"):
            faults.append(f"{name}: no {text!r}")
    return faults


def test_a_format_is_known_wherever_formats_are_listed() -> None:
    assert [fault for name in OURS for fault in row_faults(FORMATS[name])] == []


def test_a_format_that_is_a_row_alone_is_noticed() -> None:
    row = Format("unlisted", "an UNLISTED file", FORMATS["jsonl"].file, (".unlisted",))
    faults = row_faults(row)
    places = ("spark_names", "docs/formats.md", "docs/spark.md", "docs/ingest.md", "README.md", "tests/readers")
    assert [place for place in places if not any(fault.startswith(place) for fault in faults)] == []


@pytest.mark.parametrize("name", ["drive.parq", "drive.PQ", "drive.parquet"])
def test_parquet_is_found_by_each_of_its_suffixes(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    make_parquet(tmp_path / "in" / name, tmp_path)
    assert run("convert", tmp_path / "in", "-o", tmp_path / "out", "--executor", "inline").exit_code == 0
    assert (tmp_path / "out" / "drive.rrd").is_file()
    shutil.copytree(tmp_path / "in", tmp_path / "landing")
    Ingest(tmp_path / "landing", into=tmp_path / "lake", settle=0, executor="inline").start(
        once=True
    ).await_termination()
    assert len(list(RecordingStore.open(tmp_path / "lake"))) == 1


def test_a_range_of_log_times_is_for_every_front(data: Path, tmp_path: Path) -> None:
    source = data / "demo.mcap"
    first, last = McapReader(source).time_bounds()
    middle = (first + last) // 2
    wanted = cells(McapReader(source, start_time_ns=first, end_time_ns=middle).stream().to_chunks(executor="inline"))
    times = ["--start-time-ns", first, "--end-time-ns", middle]
    assert run("convert", source, "-o", tmp_path / "a.rrd", "--executor", "inline", *times).exit_code == 0
    assert cells(RrdReader(tmp_path / "a.rrd").stream().to_chunks(executor="inline")) == wanted
    row = FORMATS["mcap"]
    given = {"path": str(source), "start_time_ns": str(first), "end_time_ns": str(middle)}
    assert cells(c for t in chunk_tasks([str(source)], Request.of(row, given)) for c in t.work.run(0)) == wanted
    (tmp_path / "landing").mkdir()
    shutil.copy(source, tmp_path / "landing")
    options = {"start_time_ns": first, "end_time_ns": middle, "optimize": None}
    query = Ingest(tmp_path / "landing", rrds=tmp_path / "rrds", settle=0, executor="inline", **options)
    query.start(once=True).await_termination()
    assert cells(RrdReader(tmp_path / "rrds" / "demo.rrd").stream().to_chunks(executor="inline")) == wanted
    bad = run("convert", source, "-o", tmp_path / "b.rrd", "--start-time-ns", "noon")
    assert bad.exit_code == 2 and "not a number of nanoseconds" in bad.stderr
    make_parquet(tmp_path / "x.parquet", data)
    other = run("convert", tmp_path / "x.parquet", "-o", tmp_path / "b.rrd", "--executor", "inline", *times)
    assert other.exit_code == 2 and "--start-time-ns and --end-time-ns choose log times" in other.stderr


def test_rows_that_take_what_another_has_are_refused() -> None:
    for row, text in (
        (Format("mcap", "another", FileSource), "there is already a format 'mcap'"),
        (Format("x", "an x", FileSource, (".rrd",)), "'.rrd' is the suffix of another format"),
        (Format("x", "an x", FileSource, (".X",)), "'.X' is the suffix of another format, or not a suffix"),
        (Format("x", "an x", Conflicting, (".x",)), "'topics' differs from the option of 'mcap'"),
    ):
        with pytest.raises(UsageError, match=re.escape(text)):
            register(row)
        assert "x" not in FORMATS


@dataclass(frozen=True)
class Conflicting(FileSource):
    """Its option has the name of another format's."""

    topics: tuple[str, ...] = option((), "Something else.")
