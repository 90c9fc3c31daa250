"""What a notebook shows of an object: well-formed, escaped, bounded, and true to the object."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from chunkmill import (
    Chunk,
    ChunkStore,
    ComponentColumn,
    LazyChunkStream,
    LeRobotDataset,
    LeRobotReader,
    McapReader,
    ParquetReader,
    RecordingStore,
    RrdReader,
    TimeColumn,
)
from chunkmill.engine.markup import MOST_ROWS

IDS = {"application_id": "<script>alert(1)</script>", "recording_id": "a&b"}
HOSTILE = '</div><script>"&\x00\u202e'


def chunk_of(path: str = "/arm", rows: int = 3, columns: int = 1, name: str = "volume") -> Chunk:
    times = TimeColumn("frame", sequence=range(rows))
    return Chunk.from_columns(path, [times], [ComponentColumn(f"{name}{i}", [1.5] * rows) for i in range(columns)])


def panel_of(thing: Any) -> ElementTree.Element:
    """The panel of an object, which XML can read: so every text in it is escaped."""
    text = thing._repr_html_()
    assert "<script" not in text
    assert not re.search(r"""(src|href)=|url\(|@import""", text)
    assert len(text) < 120_000
    return ElementTree.fromstring(f"<all>{text}</all>")


def words(thing: Any) -> str:
    root = panel_of(thing)
    for element in root.iter():
        if element.tag.endswith("style"):
            element.text = ""
    return " ".join(" ".join(root.itertext()).split())


def test_a_chunk_is_its_table() -> None:
    said = words(chunk_of(rows=12))
    assert "Chunk /arm 12 rows" in said
    assert "frame Int64".replace(" ", "") in said.replace(" ", "")
    assert "[1.5]" in said
    assert "… and 2 more" in said


def test_a_chunk_of_many_columns_and_long_values_stays_small() -> None:
    wide = Chunk.from_columns("/w", [], [ComponentColumn(f"c{i}", [["x" * 100_000]]) for i in range(60)])
    assert len(wide._repr_html_()) < 20_000
    assert "44 columns not shown" in words(wide)


def test_a_chunk_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    chunk_of().to_record_batch()
    LazyChunkStream.from_iter([chunk_of(rows=2000)]).write_rrd(tmp_path / "cut.rrd", **IDS, executor="inline")
    [chunk] = RrdReader(tmp_path / "cut.rrd").store()
    data = bytearray((tmp_path / "cut.rrd").read_bytes())
    at = chunk.payload.offset
    data[at : at + 64] = b"\xff" * 64
    (tmp_path / "cut.rrd").write_bytes(data)
    assert "cut.rrd" in words(chunk)


def test_names_from_files_are_escaped() -> None:
    chunk = Chunk.from_columns(HOSTILE, [TimeColumn(HOSTILE, sequence=[1])], [ComponentColumn(HOSTILE, [HOSTILE])])
    for thing in (chunk, ChunkStore.from_chunks([chunk]), ChunkStore.from_chunks([chunk]).schema()):
        assert "\x00" not in thing._repr_html_()
        panel_of(thing)
    panel_of(LazyChunkStream.from_iter([chunk]).filter(content="/a/**", has_timeline=HOSTILE))


def test_a_schema_has_its_timelines_and_components() -> None:
    schema = ChunkStore.from_chunks([chunk_of(columns=2), chunk_of("/leg")]).schema()
    said = words(schema)
    assert "1 timeline, 3 components" in said
    assert "/leg" in said
    assert "… and 1,140 more" in words(ChunkStore.from_chunks([chunk_of(columns=1200)]).schema())


def test_a_stream_is_its_plan(data: Path) -> None:
    stream = McapReader(data / "demo.mcap").stream()
    kept = stream.filter(content="/imu/**").map(lambda chunk: chunk)
    assert "1 source, 2 steps" in words(kept)
    assert {"read", "filter", "map", "output"} <= set(words(kept).split())
    assert "consumed" in words(stream)
    many = LazyChunkStream.merge(*(LazyChunkStream.from_iter([chunk_of()]) for _ in range(500)))
    assert "500 sources, 1 step" in words(many)
    assert "… and 461 more" in words(many)


def test_a_store_has_its_entities_and_where_they_lie_in_time() -> None:
    late = Chunk.from_columns("/late", [TimeColumn("frame", sequence=[900, 1000])], [ComponentColumn("v", [1.0, 2.0])])
    early = Chunk.from_columns("/early", [TimeColumn("frame", sequence=[0, 250])], [ComponentColumn("v", [1.0, 2.0])])
    static = Chunk.from_columns("/still", [], [ComponentColumn("v", [1.0])])
    root = panel_of(ChunkStore.from_chunks([late, early, static]))
    rows = {row[0].text: row for row in root.iter("tr") if len(row) == 5}
    bars = {path: [i.attrib["style"] for i in rows[path].iter("i")] for path in ("/late", "/early")}
    assert bars == {"/late": ["left:90.00%;width:10.00%"], "/early": ["left:0.00%;width:25.00%"]}
    assert rows["/still"][4].text == "static"


def test_a_store_of_many_entities_stays_small() -> None:
    store = ChunkStore.from_chunks([chunk_of(f"/e{i}", rows=1) for i in range(300)])
    assert f"… and {300 - MOST_ROWS} more" in words(store)


def test_a_kept_store_and_an_rrd_show_what_they_hold(tmp_path: Path) -> None:
    stream = LazyChunkStream.from_iter([chunk_of()])
    stream.collect(into=tmp_path / "kept", executor="inline", **IDS)
    said = words(RecordingStore.open(tmp_path / "kept"))
    assert "version 1 of" in said
    assert "a&b" in said
    [entry] = RecordingStore.open(tmp_path / "kept")
    said = words(entry)
    assert said.startswith("Recording a&b recording, application <script>alert(1)</script>, 1 chunk, 3 rows")
    assert entry.shards[0] in said
    report = stream.write_rrd(tmp_path / "a.rrd", **IDS, executor="inline")
    assert "3 rows" in words(RrdReader(tmp_path / "a.rrd"))
    assert "Where the time went" in words(report)
    assert repr(report).startswith(f"RunReport({tmp_path}/a.rrd: 3 rows in 1 chunk, ")


def test_readers_show_what_is_in_the_file(data: Path) -> None:
    reader = McapReader(data / "demo.mcap")
    said = words(reader)
    assert "3,513 messages" in said
    assert "/nissan/gps/duro/imu 1,556 99.2 sensor_msgs/msg/Imu cdr" in said
    assert repr(reader.info()) == f"McapInfo({data / 'demo.mcap'}: 782.5 kB, 6 channels, 3,513 messages)"
    dataset = data / "parquet" / "lerobot_v3_apple_storage"
    assert "episode" in words(LeRobotDataset(dataset))
    assert words(LeRobotReader(dataset)) == words(LeRobotDataset(dataset))
    said = words(LeRobotDataset(dataset).episode(0))
    assert f"LeRobotEpisode({dataset}, 0)" in said
    assert f"{LeRobotDataset(dataset).episode(0).length:,} frames" in said
    assert "observation.state" in said
    assert "video file from" in said
    [file, *_] = sorted(dataset.rglob("*.parquet"))
    assert "may be a timeline" in words(ParquetReader(file))


def test_a_reader_of_a_damaged_file_says_so(data: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.mcap"
    cut.write_bytes((data / "demo.mcap").read_bytes()[:1000])
    assert "cut.mcap" in words(McapReader(cut))
    bad = tmp_path / "bad.rrd"
    bad.write_bytes(b"RRF2 and nothing else")
    assert "bad.rrd" in words(RrdReader(bad))


def test_nothing_of_it_is_loaded_before_it_is_shown() -> None:
    program = (
        "import sys, chunkmill; chunkmill.Chunk, chunkmill.McapReader; print({'html', 'IPython'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("colours", ["background:#ffffff;color:#111111", "background:#111418;color:#dddddd"])
def test_a_browser_draws_it_in_the_colours_of_the_page(data: Path, tmp_path: Path, colours: str) -> None:
    browser = next((b for b in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if b), None)
    if browser is None:
        pytest.skip("no browser: chromium is not installed")
    reader = McapReader(data / "demo.mcap")
    panels = reader._repr_html_() + reader.stream().filter(content="/imu/**")._repr_html_()
    measured = (
        "<script>const of = q => getComputedStyle(document.querySelector(q));"
        "document.title = JSON.stringify([of('td.path').color, of('svg text').fill, of('svg .back').fill,"
        "document.querySelectorAll('.track i').length, document.documentElement.scrollWidth > innerWidth])</script>"
    )
    page = tmp_path / "page.html"
    page.write_text(f'<!doctype html><meta charset="utf-8"><body style="{colours}">{panels}{measured}', "utf-8")
    options = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--window-size=1000,900",
        f"--user-data-dir={tmp_path}/p",
    ]
    done = subprocess.run([browser, *options, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=60)
    ink = "rgb(17, 17, 17)" if colours.endswith("#111111") else "rgb(221, 221, 221)"
    assert f'["{ink}","{ink}","rgba(0, 0, 0, 0)",' in done.stdout
    assert "false]</title>" in done.stdout
