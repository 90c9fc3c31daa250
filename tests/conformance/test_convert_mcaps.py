"""``chunkmill convert`` on every real MCAP: every message in is a row out, and Rerun opens the result.

But for messages of several transforms, each of which is a row, and of joints, whose series are at entities below.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from chunkmill.engine.chunk import parse_entity_path
from chunkmill.engine.cli import main
from chunkmill.readers import RrdReader
from comparison import rerun_store, rerun_verify
from mcap.exceptions import McapError
from mcap.reader import make_reader
from places import recordings

BELOW = {"JointState": ("position", "velocity", "effort"), "Joy": ("axes", "buttons")}


def expected_rows(path: Path) -> Counter[str] | None:
    """Rows by entity, for the messages that the official library finds; None where it cannot read the file."""
    counts: Counter[str] = Counter()
    try:
        with path.open("rb") as file:
            for schema, channel, message in make_reader(file).iter_messages(log_time_order=False):
                entity = parse_entity_path(channel.topic)
                package, _, kind = "" if schema is None else schema.name.replace("/msg/", "/").partition("/")
                if kind == "TFMessage":
                    of = transforms(schema.encoding, message.data)
                    counts[entity] += of if not channel.topic.endswith("/tf_static") else 0
                    continue
                counts[entity] += 1
                for child in BELOW.get(kind, ()) if package == "sensor_msgs" else ():
                    counts[f"{entity}/{child}"] += 1
    except McapError:
        return None
    return +counts


def transforms(encoding: str, data: bytes) -> int:
    """How many transforms a message begins to say it has, in CDR behind its header."""
    return int.from_bytes(data[:4] if encoding == "ros1msg" else data[4:8], "little")


def rows(path: Path) -> Counter[str]:
    """Rows by entity in an RRD, temporal chunks only."""
    counts: Counter[str] = Counter()
    for chunk in RrdReader(path).stream().to_chunks(executor="inline"):
        if not chunk.is_static:
            counts[chunk.entity_path] += chunk.num_rows
    return counts


def run(*arguments: object) -> int:
    """The exit code of a command line, run in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["chunkmill", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
    return int(left.value.code or 0)


@pytest.mark.parametrize("path", recordings("*.mcap", "mcap/*.mcap"))
def test_every_message_becomes_a_row(path: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.rrd"
    expected = expected_rows(path)
    code = run("convert", path, "-o", out, "--executor", "inline")
    said = capfd.readouterr().err
    if expected is None:
        assert code == 1
        assert said.startswith("Error: ") or "rror" in said
        assert "Traceback" not in said
        assert list(tmp_path.iterdir()) == []
        return
    assert code == 0, said
    assert rows(out) == expected if expected else not expected
    if expected:
        pytest.importorskip("rerun.chunk")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            store = rerun_store(out)
        assert sum(1 for _ in store.stream().to_chunks()) > 0
        rerun_verify(out)


def flipped(whole: bytes) -> bytes:
    """One bit is another, where the chunks are."""
    place = len(whole) // 3
    return whole[:place] + bytes([whole[place] ^ 8]) + whole[place + 1 :]


DAMAGED: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "empty": ("talker", lambda whole: b""),
    "magic only": ("talker", lambda whole: whole[:8]),
    "bit in a zstd chunk": ("MovingHost", flipped),
    "no footer": ("wbag_0", lambda whole: whole[: whole.index(b"\x0f" + (4).to_bytes(8, "little"))]),
    "cut in an lz4 chunk": ("solutions", lambda whole: whole[: len(whole) // 2]),
    "garbage behind the end": ("talker", lambda whole: whole + bytes(4096)),
}
"""A recording of the repository, and what befell it."""


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_fails_with_one_paragraph(
    name: str, data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    recording, damaged = DAMAGED[name]
    (whole,) = (data / "mcap").glob(f"*{recording}*.mcap")
    path = tmp_path / "damaged.mcap"
    path.write_bytes(damaged(whole.read_bytes()))
    assert run("convert", path, "-o", tmp_path / "out.rrd", "--executor", "inline") == 1
    said = capfd.readouterr().err.strip()
    assert str(path) in said.replace("\n", "") or path.name in said
    assert "Traceback" not in said and "\n\n" not in said
    assert list(tmp_path.iterdir()) == [path]
