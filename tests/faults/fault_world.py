"""A landing folder with a story: files in three batches, of all formats, good and bad, the same and replaced.

Everything that is in it is made here, or is a small recording of ``tests/data``; times of modification lie in the past
and tell the order.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.stream import LazyChunkStream
from fault_content import Known, converted, digest_of_path

MCAPS: Final = Path(__file__).resolve().parent.parent / "data" / "mcap"
BATCH: Final = 3
"""Files of a batch."""

LONG_AGO: Final = 1_700_000_000

STORY: Final[tuple[tuple[tuple[str, str], ...], ...]] = (
    (
        ("a.mcap", "talker.mcap"),
        ("b.rrd", "two.rrd"),
        ("poison.mcap", "poison.mcap"),
        ("c.parquet", "first.parquet"),
        ("sub/same.mcap", "talker.mcap"),
        ("mended.mcap", "torn.mcap"),
    ),
    (
        ("c.parquet", "second.parquet"),
        ("mended.mcap", "log.mcap"),
        ("e.rrd", "one.rrd"),
    ),
)
"""What lands, act by act: names in the landing folder, and the file that comes under each."""

POISON: Final = "poison.mcap"
REPLACED: Final = "first.parquet"
GOOD: Final = ("talker.mcap", "two.rrd", "first.parquet", "second.parquet", "log.mcap", "one.rrd")


@dataclass
class Template:
    """The files of the story, in one folder, and what each becomes when it is converted by itself."""

    folder: Path
    digests: dict[str, str] = field(default_factory=dict)
    known: Known = field(default_factory=dict)

    def save(self) -> None:
        """Write down what is known of the files."""
        (self.folder / "known.json").write_text(json.dumps([self.digests, self.known]))

    @classmethod
    def load(cls, folder: Path) -> Template:
        """A template that another process has made."""
        digests, known = json.loads((folder / "known.json").read_text())
        return cls(folder, digests, known)


def recording(path: Path, number: int, rows: int = 20) -> None:
    """A small RRD; all with another ``number`` differ."""
    values = np.arange(rows, dtype=np.float64) + 1000.0 * number
    chunks = [
        Chunk.from_columns(
            f"/e/{i}", [TimeColumn("frame", sequence=range(rows))], [ComponentColumn("x", (values + i).tolist())]
        )
        for i in range(2)
    ]
    stream = LazyChunkStream.from_iter(chunks)
    stream.write_rrd(path, application_id="story", recording_id=f"recording-{number}", executor="inline")


def table(path: Path, number: int, rows: int = 20) -> None:
    """A small Parquet file."""
    columns = {"timestamp": np.arange(rows) / 10.0, "value": np.arange(rows) + 100.0 * number}
    pq.write_table(pa.table(columns), path)


def make_template(folder: Path) -> None:
    """Make the files of the story, and convert each by itself."""
    folder.mkdir(parents=True)
    shutil.copy(MCAPS / "rosbag2__talker.mcap", folder / "talker.mcap")
    shutil.copy(MCAPS / "rerun__foxglove_log.mcap", folder / "log.mcap")
    talker = (folder / "talker.mcap").read_bytes()
    (folder / "poison.mcap").write_bytes(b"this has never been a recording")
    (folder / "torn.mcap").write_bytes(talker[: len(talker) // 3])
    recording(folder / "one.rrd", 1)
    recording(folder / "two.rrd", 2)
    table(folder / "first.parquet", 1)
    table(folder / "second.parquet", 2)
    made = Template(folder)
    for path in sorted(folder.iterdir()):
        made.digests[path.name] = digest_of_path(path)
    for name in GOOD:
        made.known[made.digests[name]] = sorted(converted(folder / name))
    made.save()


def land(template: Template, landing: Path, act: int) -> None:
    """Let the files of an act land, each in one step. What was there already stays as it is."""
    for number, (name, source) in enumerate(STORY[act]):
        target = landing / name
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.draft")
        shutil.copyfile(template.folder / source, draft)
        os.utime(draft, (LONG_AGO + 100 * act + number,) * 2)
        draft.replace(target)


def landed_names() -> Iterator[str]:
    """All names that have landed in the end."""
    yield from dict.fromkeys(name for act in STORY for name, _ in act)
