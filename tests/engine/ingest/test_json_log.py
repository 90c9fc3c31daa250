"""The log of an ingestion: lines of JSON, lines of text, records for applications."""

from __future__ import annotations

import io
import json
import logging
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from chunkmill.engine.errors import ReadError, ReadWarning, WriteError
from chunkmill.engine.ingest import BatchResult, FileResult, LandedFile, Outcome
from chunkmill.engine.ingest.metrics import IngestLog, logging_to

BAD = FileResult(
    LandedFile("/landing/bad.mcap", 10, 1),
    Outcome.QUARANTINED,
    digest="ab",
    error=ReadError("cut", path="/landing/bad.mcap", offset=7).to_dict(),
)
GOOD = FileResult(LandedFile("/landing/good.mcap", 1000, 1), Outcome.ADDED, "cd", ("drive",), 3, 40, 700)


def batch(*files: FileResult, replayed: bool = False) -> BatchResult:
    return BatchResult("q-1", 4, 5, files, 1.5, replayed)


def json_lines(act: Callable[[IngestLog], None], **options: Any) -> list[dict[str, Any]]:
    stream = io.StringIO()
    with logging_to(stream, as_json=True, **options):
        act(IngestLog(every_file=True))
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def text_lines(act: Callable[[IngestLog], None], encoding: str = "utf-8") -> list[str]:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding)
    with logging_to(stream):
        act(IngestLog())
    stream.flush()
    return raw.getvalue().decode(encoding).splitlines()


def test_a_batch_is_a_line_of_json_with_what_became_of_it() -> None:
    line = json_lines(lambda log: log.batch_done(batch(GOOD, BAD)))[-1]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    message = line.pop("message")
    assert message.startswith("batch 4: 1 added, 1 quarantined; 1.0 kB -> 700 B, 40 rows in 3 chunks; 1.5 s, version 5")
    assert line == {
        "level": "info",
        "logger": "chunkmill.ingest",
        "event": "batch_done",
        "query_id": "q-1",
        "batch": 4,
        "version": 5,
        "seconds": 1.5,
        "replayed": False,
        "files": 2,
        "outcomes": {"added": 1, "quarantined": 1},
        "bytes": 1010,
        "bytes_out": 700,
        "recordings": 1,
        "chunks": 3,
        "rows": 40,
    }


def test_each_file_is_a_line_of_json() -> None:
    good, bad, _ = json_lines(lambda log: log.batch_done(batch(GOOD, BAD)))
    assert (good["level"], good["event"], good["file"], good["outcome"]) == (
        "info",
        "file",
        "/landing/good.mcap",
        "added",
    )
    assert (good["recordings"], good["rows"], good["bytes"], good["digest"]) == (["drive"], 40, 1000, "cd")
    assert (bad["level"], bad["outcome"], bad["error_code"]) == ("warning", "quarantined", "chunkmill.read")
    assert bad["error"]["offset"] == 7


def test_a_replayed_batch_has_one_line() -> None:
    lines = json_lines(lambda log: log.batch_done(batch(GOOD, BAD, replayed=True)))
    assert [(line["event"], line["replayed"]) for line in lines] == [("batch_done", True)]


def test_a_whole_ingestion_names_its_query_in_each_line() -> None:
    def run(log: IngestLog) -> None:
        log.started("q-1", "landing", "lake")
        log.looked(2, 1, 3.5)
        log.batch_began(4, 2, 1010)
        log.batch_failed(4, WriteError("the disk is full", path="lake"))
        log.stopped("SIGTERM")

    lines = json_lines(run, level=logging.DEBUG)
    assert [line["event"] for line in lines] == ["started", "looked", "batch_began", "batch_failed", "stopped"]
    assert {line["query_id"] for line in lines} == {"q-1"}
    assert [line["level"] for line in lines] == ["info", "debug", "debug", "error", "info"]
    assert (lines[3]["error_code"], lines[3]["error"]["path"]) == ("chunkmill.write", "lake")
    assert "trace" not in lines[3]


def test_an_unexpected_error_has_its_trace_in_its_one_line() -> None:
    def run(log: IngestLog) -> None:
        try:
            raise LookupError("a\nb")
        except LookupError as error:
            log.batch_failed(1, error)

    (line,) = json_lines(run)
    assert line["error_code"] == "LookupError"
    assert "Traceback" in line["trace"]


def test_names_that_are_no_text_do_not_break_lines() -> None:
    name = "/landing/\udcff\n\x1b[31m.mcap"
    (line, _) = json_lines(lambda log: log.batch_done(batch(FileResult(LandedFile(name, 1, 1), Outcome.ADDED))))
    assert line["file"] == "/landing/\\udcff\n\x1b[31m.mcap"
    bad = FileResult(LandedFile(name, 1, 1), Outcome.QUARANTINED, error={"code": "x", "message": "m"})
    text = text_lines(lambda log: log.batch_done(batch(bad)))
    assert len(text) == 2
    assert "/landing/\\udcff \\x1b[31m.mcap: quarantined: m" in text[0]


def test_a_stream_that_cannot_say_a_letter_has_it_spelled_out() -> None:
    text = text_lines(lambda log: log.stopped("Größe \N{SNOWMAN}"), "latin-1")
    assert text[0].endswith("stopped: Größe \\u2603")


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_json_does_not_have_are_null(number: float) -> None:
    logger = logging.getLogger("chunkmill.ingest")
    (line,) = json_lines(lambda _: logger.info("", extra={"ingest": {"rate": number, "files": 3}}))
    assert (line["rate"], line["files"]) == (None, 3)


def test_people_get_a_line_for_a_batch_and_one_for_each_file_in_quarantine() -> None:
    lines = text_lines(lambda log: log.batch_done(batch(GOOD, BAD, GOOD)))
    assert len(lines) == 2
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ warning: /landing/bad\.mcap: quarantined: cut$", lines[0])
    assert re.match(r"\S+Z batch 4: 2 added, 1 quarantined; ", lines[1])


@pytest.mark.parametrize("outcome", [Outcome.VANISHED, Outcome.CHANGED])
def test_people_are_told_of_files_that_were_not_taken(outcome: Outcome) -> None:
    lines = text_lines(lambda log: log.batch_done(batch(FileResult(LandedFile("a", 1, 1), outcome))))
    assert lines[0].endswith(f"a: {outcome} before it was ingested")


def test_an_application_gets_records_with_plain_data(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "chunkmill.ingest"):
        IngestLog().batch_done(batch(GOOD))
    data: list[dict[str, Any]] = [record.ingest for record in caplog.records]  # type: ignore[attr-defined]
    assert [(d["event"], d["batch"]) for d in data] == [("file", 4), ("batch_done", 4)]
    assert caplog.records[0].levelno == logging.DEBUG


def test_warnings_and_other_loggers_of_the_project_go_the_same_way() -> None:
    def run(_: IngestLog) -> None:
        logging.getLogger("chunkmill.lease").warning("waiting for %s", "robot7")
        for _again in range(2):
            warnings.warn("a message was not decoded", ReadWarning, stacklevel=1)

    first, *others = json_lines(run)
    assert (first["logger"], first["message"]) == ("chunkmill.lease", "waiting for robot7")
    assert [(other["level"], other["event"]) for other in others] == [("warning", "warning")] * 2
    assert others[0]["message"] == "a message was not decoded"


def test_warnings_of_others_stay_what_they_are() -> None:
    def run(_: IngestLog) -> None:
        with pytest.warns(UserWarning, match="odd"):
            warnings.warn("odd", UserWarning, stacklevel=1)

    assert json_lines(run) == []


def test_nothing_is_left_of_the_handlers() -> None:
    logger = logging.getLogger("chunkmill")
    before = (list(logger.handlers), logger.level, logger.propagate)
    shown = warnings.showwarning
    with logging_to(io.StringIO()):
        assert list(logger.handlers) != before[0]
    assert (list(logger.handlers), logger.level, logger.propagate) == before
    assert warnings.showwarning is shown
