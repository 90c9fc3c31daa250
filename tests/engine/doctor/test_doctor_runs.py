"""Where a diagnosis runs and what it prints: datasets, both executors, the command line, ingestions, hostile inputs."""

from __future__ import annotations

import html
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chunkmill.engine import CatalogClient, Ingest
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.doctor import Diagnosis, Finding, diagnose, examination
from chunkmill.engine.errors import NotFoundError, ReadError, ReadWarning, UsageError
from chunkmill.engine.ingest import FileQuarantine, batch, home_of
from click.testing import CliRunner, Result

from tests import video_files
from tests.engine.doctor.recordings_with_faults import (
    Drive,
    drive,
    kept,
    set_cells,
    set_number,
    shifted,
    write_lerobot,
    write_rrd,
)


def gap(made: Drive) -> None:
    kept("/imu", lambda rows: (rows < 500) | (rows >= 800))(made)


def jump(made: Drive) -> None:
    shifted("/pose", 400, -3, "log_time", "sensor_time")(made)


def written(folder: Path, **plants: object) -> Path:
    """Recordings by their names, each with what is planted."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, plant in plants.items():
        made = drive()
        if callable(plant):
            plant(made)
        write_rrd(folder / f"{name}.rrd", made)
    return folder


def run(*arguments: object) -> Result:
    return CliRunner().invoke(commands, ["doctor", *map(str, arguments)])


def places(diagnosis: Diagnosis) -> list[tuple[str | None, str, str | None]]:
    return [(finding.segment, finding.kind, finding.entity_path) for finding in diagnosis]


FOUND = [("jump", "clock-backward", "/pose"), ("gap", "gap", "/imu")]


def dataset(tmp_path: Path) -> CatalogClient:
    folder = written(tmp_path / "files", clean=None, gap=gap, jump=jump)
    client = CatalogClient(tmp_path / "lake")
    client.create_dataset("drives").register([str(path) for path in sorted(folder.iterdir())]).wait()
    return client


def test_a_dataset_is_examined_segment_by_segment(tmp_path: Path) -> None:
    client = dataset(tmp_path)
    entry = client.get_dataset("drives")
    whole = diagnose(entry, executor="inline")
    assert places(whole) == FOUND
    assert (whole.recordings, whole.rows) == (3, diagnose(tmp_path / "files/clean.rrd").rows * 3 - 300)
    assert places(diagnose(entry, segments="gap", executor="inline")) == FOUND[1:]
    assert diagnose(entry, segments=["clean"], executor="inline")
    assert places(diagnose(entry, kinds={"gap"}, executor="inline")) == FOUND[1:]
    table = whole.to_arrow_table()
    assert table.column("severity").to_pylist() == ["error", "warning"]
    assert all(hint.endswith(".") for hint in table.column("hint").to_pylist())
    with pytest.raises(NotFoundError, match="no recording 'none'"):
        diagnose(entry, segments="none", executor="inline")
    with pytest.raises(NotFoundError, match="no recording 'none'"):
        diagnose(tmp_path / "files/gap.rrd", segments="none")
    with pytest.raises(UsageError, match="'holes' is not a kind"):
        diagnose(entry, kinds="holes")
    with pytest.raises(ReadError, match="no version 99"):
        diagnose(entry, options={"version": 99})
    assert diagnose(client.create_dataset("empty"), executor="inline").recordings == 0


def test_spark_finds_the_same(tmp_path: Path) -> None:
    entry = dataset(tmp_path).get_dataset("drives")
    here, there = (diagnose(entry, executor=name) for name in ("inline", "spark"))
    assert here == there
    assert places(there) == FOUND


def test_a_damaged_segment_is_a_finding_and_the_others_are_examined(tmp_path: Path) -> None:
    client = dataset(tmp_path)
    path = tmp_path / "files/clean.rrd"
    data = bytearray(path.read_bytes())
    for at in range(len(data) // 4, len(data) // 2, 97):
        data[at] ^= 0xFF
    path.write_bytes(data)
    found = diagnose(client.get_dataset("drives"), executor="inline")
    assert sorted(places(found), key=str) == sorted([("clean", "unreadable", None), *FOUND], key=str)
    with pytest.raises(ReadError):
        diagnose(path)


def test_the_intact_part_of_a_cut_file_is_examined(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.mcap"
    path.write_bytes((data / "demo.mcap").read_bytes()[:500_000])
    with pytest.raises(ReadError, match="does not end with"):
        diagnose(path)
    with pytest.warns(ReadWarning, match="recovered 2,455 messages"):
        found = diagnose(path, options={"recover": True})
    assert (found.recordings, found.rows) == (1, 2465)


# --- the command line


def test_the_command_prints_a_table_and_says_what_to_do(tmp_path: Path) -> None:
    folder = written(tmp_path / "a 'folder' \"of\" <drives>", clean=None, jump=jump, gap=gap)
    result = run(folder, "--html", tmp_path / "page.html")
    assert result.exit_code == 1
    assert "clean.rrd: 1 recording, " in result.output
    assert ": no findings" in result.output
    assert "clock-backward: a clock steps back. Split the recording there" in result.output
    page = (tmp_path / "page.html").read_text()
    assert "clock-backward" in page
    assert "<drives>" not in page
    assert html.escape("<drives>") in page
    assert run(folder / "clean.rrd", "-q").output == ""
    assert run(folder / "clean.rrd").exit_code == 0
    again = run(folder / "clean.rrd", "--html", tmp_path / "page.html")
    assert (again.exit_code, "this file exists" in again.output) == (2, True)
    assert run(folder / "clean.rrd", "--html", tmp_path / "page.txt").exit_code == 2


def test_the_command_prints_json(tmp_path: Path) -> None:
    dataset(tmp_path)
    for arguments in ((tmp_path / "lake",), (tmp_path / "lake", "--dataset", "drives")):
        result = run(*arguments, "--json", "--executor", "inline")
        rows = [json.loads(line) for line in result.output.splitlines()]
        assert result.exit_code == 1
        assert [(row["segment"], row["kind"], row["entity_path"]) for row in rows] == FOUND
        assert {"severity", "hint", "start", "end", "value", "expected", "timeline", "source"} <= rows[0].keys()
    assert run(tmp_path / "lake", tmp_path / "lake", "--dataset", "drives").exit_code == 2
    assert run(tmp_path / "lake", "--dataset", "none").exit_code == 1
    assert run(tmp_path / "lake", "--kinds", "holes").exit_code == 2
    missing = run(tmp_path / "none.mcap", tmp_path / "files/gap.rrd", "--json")
    assert (missing.exit_code, '"kind": "gap"' in missing.output) == (1, True)


def test_many_findings_of_a_kind_are_cut_on_the_terminal(tmp_path: Path) -> None:
    made = drive()
    made["/imu"].times = {"log_time": made["/imu"].times["log_time"]}
    for number in range(25):
        made[f"/camera{number}/image"] = made["/front/image"]
    result = run(write_rrd(tmp_path / "cameras.rrd", made))
    assert result.output.count("missing-calibration  ") == 20
    assert "--json shows 5 more" in result.output


# --- ingestions


def ingest(tmp_path: Path, policy: str | None, name: str) -> dict[str, tuple[str, str]]:
    """Ingest what has landed; return the code and message of each file in quarantine."""
    place = tmp_path / name
    query = Ingest(tmp_path / "landing", into=place, diagnose=policy, executor="inline", settle=0).start(once=True)
    query.await_termination()
    return {Path(file.path).stem: (file.code, file.message) for file in FileQuarantine(home_of(place)).rows()}


def test_an_ingestion_stores_and_warns_or_puts_files_with_errors_into_quarantine(tmp_path: Path) -> None:
    written(tmp_path / "landing", clean=None, gap=gap, jump=jump)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ReadWarning)
        assert ingest(tmp_path, "warn", "warned") == {}
    texts = [str(warning.message) for warning in warned]
    assert all(any(text in said for said in texts) for text in ("gap: /imu", "clock-backward: /pose"))
    assert places(diagnose(tmp_path / "warned", executor="inline")) == FOUND
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReadWarning)
        held = ingest(tmp_path, "quarantine", "guarded")
    assert held.keys() == {"jump"}
    code, message = held["jump"]
    assert code == "chunkmill.faulty_data"
    assert message.startswith("clock-backward: /pose")
    assert places(diagnose(tmp_path / "guarded", executor="inline")) == FOUND[1:]
    with pytest.raises(UsageError, match="diagnose must be warn or quarantine"):
        Ingest(tmp_path / "landing", into=tmp_path / "other", diagnose="yes")


def test_a_damaged_file_fails_as_without_a_diagnosis(tmp_path: Path) -> None:
    written(tmp_path / "landing", clean=None)
    (tmp_path / "landing/broken.rrd").write_bytes((tmp_path / "landing/clean.rrd").read_bytes()[:-2000])
    codes = [ingest(tmp_path, policy, f"store{policy}")["broken"][0] for policy in (None, "quarantine")]
    assert codes[0] == codes[1] != "chunkmill.faulty_data"


def test_an_examination_that_fails_for_a_moment_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a file would come into the store unseen."""
    written(tmp_path / "landing", jump=jump)
    calls = []

    def failing(*given: Any) -> list[Any]:
        calls.append(given)
        lost = ReadError("the network was lost", transient=True)
        return [lost] if len(calls) == 1 else examination.examine(*given)

    monkeypatch.setattr(batch, "examine", failing)
    monkeypatch.setattr(batch, "_PAUSES", (0.0,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReadWarning)
        assert ingest(tmp_path, "quarantine", "lake").keys() == {"jump"}
    assert len(calls) == 2


# --- pictures and hostile values


def test_a_black_video_is_found_by_its_key_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(video_files, "picture", lambda *_: np.full((48, 64, 3), 2, np.uint8))
    path = tmp_path / "black.mp4"
    path.write_bytes(video_files.video(count=30))
    assert [(f.kind, f.subject) for f in diagnose(path)] == [("blank-camera", "VideoStream:sample")]


def test_pictures_that_are_none_and_empty_cells_are_no_findings(tmp_path: Path) -> None:
    made = drive()
    set_cells("/rear/image", "EncodedImage:blob", slice(0, 60, 3), [b"\x89PNG\r\n\x1a\nnothing"])(made)
    set_cells("/front/image", "Image:buffer", slice(10, 50, 3), [])(made)
    set_cells("/front/image", "Image:format", slice(0, 40, 7), None)(made)
    set_cells("/pose", "pose.Pose:quaternion", slice(5, 200, 9), None)(made)
    set_number("/imu", 1, lambda values: values * 1e300)(made)
    assert diagnose(write_rrd(tmp_path / "odd.rrd", made))


def test_names_with_quotes_and_slashes_are_written_as_they_are(tmp_path: Path) -> None:
    made = drive()
    made["/we\\ ird/\\'x\\'\\<b\\>"] = imu = drive()["/imu"]
    imu.columns["Scalars:scalars"] = [[0.0] * 6] * imu.rows
    kept("/we\\ ird/\\'x\\'\\<b\\>", lambda rows: (rows < 500) | (rows >= 800))(made)
    found = diagnose(write_rrd(tmp_path / "odd.rrd", made))
    assert places(found) == [("odd", "gap", "/we\\ ird/\\'x\\'\\<b\\>")]
    assert "\\<b\\>" not in found._repr_html_()


def test_a_lerobot_dataset_without_episodes_or_with_damaged_metadata(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path / "set", 2)
    (root / "meta/episodes.jsonl").write_text("")
    assert diagnose(root).recordings == 0
    (root / "meta/info.json").write_text("{")
    with pytest.raises(ReadError, match="is not JSON"):
        diagnose(root)


def test_a_finding_says_what_is_wrong_in_a_line() -> None:
    finding = Finding(
        "early-stop", "/a", None, "log_time", "duration", 3_000_000_000, 5_000_000_000, "2 s early", "0 s"
    )
    assert str(finding) == (
        "early-stop: /a log_time 3.000000 s to 5.000000 s: a topic stops long before the others: "
        "2 s early instead of 0 s"
    )
    diagnosis = Diagnosis((finding,), 1, 10)
    assert not diagnosis
    assert diagnosis.of_severity("warning") == (finding,)
    with pytest.raises(UsageError, match="'bad' is not a severity"):
        diagnosis.of_severity("bad")
