"""The account of an export as a page."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from chunkmill import LazyChunkStream, UsageError
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.writers import ExportReport, save_account, write_lerobot
from chunkmill.engine.writers.lerobot_page import account_page, staleness_chart
from click.testing import CliRunner
from test_lerobot_writing import numbers


def exported(where: Path) -> ExportReport:
    """Two episodes, of a feature with a gap of two seconds and of one without."""
    times = np.concatenate([np.arange(11), np.arange(30, 41)]) / 10
    chunks = [numbers("/arm", times, times[:, None]), numbers("/leg", np.arange(41) / 10, np.arange(41)[:, None])]
    spec = {
        "fps": 10,
        "episodes": {"by": "ranges", "ranges": [[0, 0.5], [0, 4], [7, 8]]},
        "features": {"observation.<state>": {"entity": "/arm"}, "action": {"entity": "/leg"}},
    }
    return write_lerobot({"a&b": LazyChunkStream.from_iter(chunks)}, where, spec, executor="inline")


def test_it_shows_counts_and_staleness_over_time(tmp_path: Path) -> None:
    report = exported(tmp_path / "set")
    page = account_page(report)
    assert "observation.&lt;state&gt;" in page and "a&amp;b" in page and "<state>" not in page
    assert "1,900.0 ms" in page  # the stalest frame, in the table and the legend
    assert "no frame has a value of every feature" in page
    assert page.count("<svg") == 3 and "<script" not in page


def test_the_line_rises_in_the_gap_and_falls_after_it(tmp_path: Path) -> None:
    chart = staleness_chart(exported(tmp_path / "set").accounts[1])
    gap, whole = ET.fromstring(chart[: chart.index("</svg>") + 6]).iter("polyline")
    heights = [float(point.split(",")[1]) for point in gap.attrib["points"].split()]
    assert len(heights) == 2 * 41
    assert min(heights) == heights[2 * 29] == 4  # the top, in the last frame of the gap
    assert heights[0] == heights[-1] == max(heights)
    assert len({point.split(",")[1] for point in whole.attrib["points"].split()}) == 1


def test_it_is_saved_as_html_or_json(tmp_path: Path) -> None:
    report = exported(tmp_path / "set")
    save_account(report, tmp_path / "a.html")
    save_account(report, tmp_path / "a.json")
    assert (tmp_path / "a.html").read_text() == account_page(report)
    assert len(json.loads((tmp_path / "a.json").read_text())["accounts"]) == 3
    with pytest.raises(UsageError, match=r"a \.json or an \.html file"):
        save_account(report, tmp_path / "a.txt")


def test_the_command_saves_it(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    times = np.arange(11) / 10
    LazyChunkStream.from_iter([numbers("/arm", times, times[:, None])]).write_rrd(
        tmp_path / "a.rrd", application_id="arm", recording_id="a"
    )
    spec = {"fps": 10, "features": {"observation.state": {"entity": "/arm"}}}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    given = ["export", "lerobot", str(tmp_path / "spec.yaml"), str(tmp_path / "a.rrd"), "-o", str(tmp_path / "set")]
    refused = CliRunner().invoke(commands, [*given, "--report", str(tmp_path / "a.txt")])
    assert refused.exit_code == 2 and not (tmp_path / "set").exists()
    done = CliRunner().invoke(commands, [*given, "--report", str(tmp_path / "a.html")])
    assert done.exit_code == 0, done.output
    assert "observation.state" in (tmp_path / "a.html").read_text()


def test_a_notebook_shows_it(tmp_path: Path) -> None:
    report = exported(tmp_path / "set")
    panel = report._repr_html_()
    assert panel.startswith('<div class="chunkmill panel">') and panel.count("<svg") == 3
    assert "a&amp;b" in panel and "observation.&lt;state&gt;" in panel and "no frame has a value" in panel
    many = replace(report, accounts=report.accounts * 100, removed=("c",))
    assert many._repr_html_().count("<svg") == 8
    assert "1 recording removed" in many._repr_html_()
    assert "<table" not in replace(report, accounts=())._repr_html_()
    assert repr(report) == f"ExportReport({tmp_path / 'set'}: 2 episodes, 47 frames in the dataset)"


def test_the_table_has_room_for_all_where_it_is_no_terminal(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    times, long = np.arange(11) / 10, "a_drive_through_the_town_with_a_long_name_" * 3
    LazyChunkStream.from_iter([numbers("/arm", times, times[:, None])]).write_rrd(
        tmp_path / f"{long}.rrd", application_id="arm", recording_id="a"
    )
    feature = "observation.state.of_the_whole_body_and_all_its_fingers"
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump({"fps": 10, "features": {feature: {"entity": "/arm"}}}))
    given = [
        "export",
        "lerobot",
        str(tmp_path / "spec.yaml"),
        str(tmp_path / f"{long}.rrd"),
        "-o",
        str(tmp_path / "set"),
    ]
    done = CliRunner().invoke(commands, given)
    assert done.exit_code == 0, done.output
    (row,) = (line for line in done.stderr.splitlines() if long in line)
    assert row.split() == [long, "0.000", "11", "11", "0", "0", "0", feature, "0.0", "ms"]
