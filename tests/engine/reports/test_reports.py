"""The report of a run: its figures against the run itself, its JSON, and its page as a browser shows it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.errors import UsageError, WriteError
from chunkmill.engine.reports import EntityReport, RunReport, SizeHistogram, TaskReport, save_report, timeline
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.engine.task_context import DECODE, OPERATE, PHASES, READ, Clock, TaskContext, phase, timed
from chunkmill.readers import McapReader, RrdReader

IDS = {"application_id": "a", "recording_id": "r"}


@pytest.fixture
def converted(data: Path, tmp_path: Path) -> tuple[RunReport, Path]:
    target = tmp_path / "demo.rrd"
    return McapReader(data / "demo.mcap").stream().write_rrd(target, **IDS), target


def test_a_report_counts_what_the_run_did(converted: tuple[RunReport, Path], data: Path) -> None:
    report, target = converted
    chunks = RrdReader(target).stream().to_chunks()
    assert (report.chunks, report.rows) == (len(chunks), sum(c.num_rows for c in chunks))
    assert report.bytes_out == target.stat().st_size
    assert 0 < report.bytes_in <= (data / "demo.mcap").stat().st_size
    assert report.sizes_out.chunks == len(chunks)
    assert {(e.entity_path, e.chunks, e.rows) for e in report.entities} == {
        (path, sum(c.entity_path == path for c in chunks), sum(c.num_rows for c in chunks if c.entity_path == path))
        for path in {c.entity_path for c in chunks}
    }
    assert [e.bytes for e in report.entities] == sorted((e.bytes for e in report.entities), reverse=True)
    assert (report.splits, report.executor, report.destination) == (len(report.tasks), "inline", str(target))
    assert "McapReader" in report.plan


def test_phases_fit_into_the_time_they_are_of(converted: tuple[RunReport, Path]) -> None:
    report, _ = converted
    assert set(report.phases) == {"plan", "start", *PHASES, "other", "commit"}
    assert all(seconds >= 0 for seconds in report.phases.values())
    assert all(report.phases[name] > 0 for name in ("plan", "read", "decode", "encode", "commit"))
    assert sum(report.phases.values()) <= report.seconds
    for task in report.tasks:
        assert sum(task.phases.values()) <= task.seconds
        assert task.start + task.seconds <= report.seconds + 0.1


def test_what_nobody_touches_is_passed_through(converted: tuple[RunReport, Path], tmp_path: Path) -> None:
    _, source = converted
    kept = RrdReader(source).stream().filter(content="/nissan/**").write_rrd(tmp_path / "kept.rrd", **IDS)
    assert kept.phases["decode"] == 0
    assert 0.5 * kept.bytes_out < kept.bytes_passed < kept.bytes_out
    touched = RrdReader(source).stream().map(lambda c: Chunk.from_data(c.data)).write_rrd(tmp_path / "t.rrd", **IDS)
    assert touched.bytes_passed == 0
    assert touched.phases["decode"] > 0


def test_spark_reports_the_same_counts(converted: tuple[RunReport, Path], data: Path, tmp_path: Path, spark) -> None:
    inline, _ = converted
    report = McapReader(data / "demo.mcap").stream().write_rrd(tmp_path / "s.rrd", **IDS, executor="spark")
    assert report.executor == "spark"
    for name in ("chunks", "rows", "bytes_in", "splits", "sizes_in", "sizes_out"):
        assert getattr(report, name) == getattr(inline, name), name
    assert sorted(e.entity_path for e in report.entities) == sorted(e.entity_path for e in inline.entities)
    assert report.tasks[0].worker != inline.tasks[0].worker
    assert report.tasks[0].start >= report.phases["plan"]


def test_a_kept_json_says_the_same(converted: tuple[RunReport, Path], tmp_path: Path) -> None:
    report, _ = converted
    save_report(report, tmp_path / "run.json")
    kept = json.loads((tmp_path / "run.json").read_text())
    assert kept["version"] == 1
    assert (kept["rows"], kept["chunks"], kept["bytes_out"]) == (report.rows, report.chunks, report.bytes_out)
    assert kept["tasks"][0]["phases"] == report.tasks[0].phases
    assert sum(kept["sizes_out"].values()) == report.chunks


def test_a_report_is_json_or_html_and_says_where_it_cannot_be_written(tmp_path: Path) -> None:
    report = RunReport(0, 0, 0, 0, 0, 0.0)
    with pytest.raises(UsageError, match=r"a \.json or an \.html file"):
        save_report(report, tmp_path / "run.txt")
    with pytest.raises(WriteError, match="No such file or directory"):
        save_report(report, tmp_path / "none" / "run.json")


def task(index: int, start: float, seconds: float, **phases: float) -> TaskReport:
    return TaskReport(index, f"split <{index}>", start, seconds, phases, 1, 10, 100, 90, 50, "host:1")


def test_reports_of_several_runs_add_up() -> None:
    one = RunReport(
        1, 2, 20, 100, 90, 2.0, started=100.0, phases={"plan": 0.1, "read": 1.0}, tasks=[task(0, 0.5, 1.0)],
        entities=[EntityReport("/a", 2, 20, 90)], sizes_out=SizeHistogram({4: 2}), warnings=("w",),
    )  # fmt: skip
    two = RunReport(
        1, 1, 5, 50, 200, 1.0, started=103.0, phases={"plan": 0.2, "commit": 0.3}, tasks=[task(0, 0.25, 0.5)],
        entities=[EntityReport("/b", 1, 4, 150), EntityReport("/a", 1, 1, 50)], sizes_out=SizeHistogram({4: 1, 9: 1}),
        warnings=("w", "v"),
    )  # fmt: skip
    both = RunReport.joined([one, two], "out", 95.0, 9.0)
    assert (both.splits, both.chunks, both.rows, both.bytes_in, both.bytes_out, both.seconds) == (2, 3, 25, 150, 290, 9)
    assert both.phases == pytest.approx({"plan": 0.3, "read": 1.0, "commit": 0.3, "start": 5.4})
    assert [(t.index, t.start) for t in both.tasks] == [(0, 5.5), (1, 8.25)]
    assert both.entities == [EntityReport("/b", 1, 4, 150), EntityReport("/a", 3, 21, 140)]
    assert both.sizes_out == SizeHistogram({4: 3, 9: 1})
    assert both.warnings == ("w", "v")
    assert both.skew == pytest.approx(1.0 / 0.75)


def test_tasks_that_overlap_are_drawn_below_each_other() -> None:
    drawn = timeline([task(0, 0.0, 2.0, read=1.0), task(1, 1.0, 2.0), task(2, 2.5, 1.0), task(3, 2.6, 0.1)], 4.0)
    tops = re.findall(r'<rect x="[\d.]+" y="(\d+)" width="[\d.]+" height="\d+" class="other"/>', drawn)
    assert tops == ["0", "22", "0", "44"]
    assert "split &lt;2&gt;" in drawn
    assert 'class="read"' in drawn


def test_a_thousand_tasks_at_once_are_drawn_up_to_a_limit() -> None:
    drawn = timeline([task(i, 0.0, 1.0) for i in range(1000)], 1.0)
    assert drawn.count("<g>") == 64
    assert "936 simultaneous tasks are not drawn" in drawn


def test_phases_exclude_each_other_and_consumers_are_not_charged() -> None:
    with TaskContext(clock := Clock()).entered():
        for _ in timed(iter([1, 2]), READ):
            with phase(DECODE):
                pass
        with TaskContext(inner := Clock()).entered(), phase(OPERATE):
            pass
    assert clock.seconds[READ] > 0
    assert clock.seconds[DECODE] > 0
    assert clock.seconds[OPERATE] == 0
    assert inner.seconds[OPERATE] > 0
    with phase(READ):
        pass  # nobody measures


def page_of(tmp_path: Path) -> Path:
    chunks = [
        Chunk.from_columns(
            path, [TimeColumn("t", sequence=range(n))], [ComponentColumn("c", [float(i) for i in range(n)])]
        )
        for path, n in (("/a/<b>", 10), ("/large", 5000))
    ]
    report = LazyChunkStream.from_iter(chunks).write_rrd(tmp_path / "page.rrd", **IDS)
    save_report(report, tmp_path / "run.html")
    return tmp_path / "run.html"


def test_a_page_stands_by_itself(tmp_path: Path) -> None:
    text = page_of(tmp_path).read_text(encoding="utf-8")
    assert "<script" not in text
    assert not re.search(r"""(src|href)=|url\(|@import""", text)
    assert "&lt;b\\&gt;" in text
    assert "<b" not in text.replace('<body class="chunkmill">', "").replace("<b>", "", 7)


@pytest.fixture(scope="module")
def browser() -> str:
    found = next((b for b in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if b), None)
    if found is None:
        pytest.skip("no browser: chromium is not installed")
    return found


def test_a_browser_shows_the_page(tmp_path: Path, browser: str) -> None:
    page = page_of(tmp_path)
    probe = page.with_name("probe.html")
    measured = (
        "<script>const of = q => [...document.querySelectorAll(q)].map(e => e.getBoundingClientRect().width);"
        "document.title = JSON.stringify({headings: [...document.querySelectorAll('h2')].map(e => e.innerText),"
        "tiles: of('.tile').length, strip: of('.strip i'), tasks: of('svg g').length, bars: of('td.bar i'),"
        "wide: document.documentElement.scrollWidth > innerWidth})</script>"
    )
    probe.write_text(page.read_text(encoding="utf-8") + measured, encoding="utf-8")
    options = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--window-size=1200,1400",
        f"--user-data-dir={tmp_path}/p",
    ]
    done = subprocess.run(
        [browser, *options, "--dump-dom", probe.as_uri()], capture_output=True, text=True, timeout=60, check=True
    )
    title = re.search(r"<title>(\{.*?\})</title>", done.stdout)
    assert title is not None, done.stderr
    shown = json.loads(title[1])
    assert shown["headings"] == [
        "Where the time went", "Tasks in time (1)", "Bytes by entity", "Chunk sizes, before and after", "Plan",
    ]  # fmt: skip
    assert shown["tiles"] == 7
    assert shown["tasks"] == 1
    assert sum(shown["strip"]) > 900
    large, small = shown["bars"][:2]
    assert large > 10 * small > 0
    assert not shown["wide"]
