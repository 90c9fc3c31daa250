"""One byte of an RRD of ours changes where it lies: is a reading, or a file made of it, wrong without a word?

    python tests/faults/flipped_bytes.py --number 500 --seed 1
    python tests/faults/flipped_bytes.py --number 500 --seed 1 --undigested   # what it was like without digests
    python tests/faults/flipped_bytes.py --number 500 --seed 1 --tables [--undigested]   # files of tables

Each of these meets the file: reading it by its footer, `chunkmill convert`, which passes chunks on undecoded, the same
with `--verify`, `chunkmill verify`, and an ingestion. What comes of it is ``refused`` with an error, or the content is
the ``same``, or it is ``silent``: the content is another, or what was written cannot be read, and nobody said so. Where
rerun-sdk is installed, its reader has to read what was written too.

``--tables`` changes bytes of Lance files: of a table with deleted rows, indexes and a computed column, and of a view of
it. ``chunkmill.verify`` meets them, and what it finds nothing wrong with is read, by scans and by its indexes.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from chunkmill import verify
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.errors import ChunkmillError
from chunkmill.engine.ingest import Ingest
from chunkmill.engine.recordings import RecordingEntry
from chunkmill.engine.rrd import RrdFile
from chunkmill.engine.rrd.messages import (
    MESSAGE_HEADER_SIZE,
    STREAM_FOOTER_SIZE,
    MessageKind,
    RrdFooter,
    message_header,
    parse_stream_footer,
    stream_footer,
)
from chunkmill.engine.store import RecordingStore
from chunkmill.engine.tables import connect, udf
from chunkmill.readers import McapReader, RrdReader
from click.testing import CliRunner
from fault_content import digest_of_path, kept_content, rrd_contents

SOURCE = Path(__file__).parents[1] / "data" / "demo.mcap"
REFUSED, SAME, SILENT = "refused", "same", "silent"


Flip = tuple[int, int]
"""Where a byte is, and the bits of it that change."""


class Flips:
    """An RRD, and copies of it with one byte changed."""

    def __init__(self, folder: Path, *, digests: bool = True) -> None:
        self._folder = folder
        self._digests = digests
        whole = folder / "whole.rrd"
        McapReader(SOURCE).stream().write_rrd(whole, application_id="a", recording_id="0000", executor="inline")
        self._whole = whole
        self.data = self._bytes(whole)
        self.content = rrd_contents(whole)
        file = RrdFile(whole)
        self._chunks = [(e.offset, e.size) for e in file.entries(file.stores()[0]) or ()]

    def region(self, at: int) -> str:
        """What lies there."""
        if any(offset <= at < offset + size for offset, size in self._chunks):
            return "chunk"
        return "footer" if at >= sum(self._chunks[-1]) else "frame or head"

    def read(self, flip: Flip) -> str:
        """Read it by its footer."""
        return _outcome(lambda: rrd_contents(self._copy(flip)) == self.content)

    def convert(self, flip: Flip, *options: str) -> str:
        """Convert it into another RRD, and read that."""
        target = self._folder / "converted.rrd"
        target.unlink(missing_ok=True)
        if _command("convert", self._copy(flip), "-o", target, "--executor", "inline", *options):
            return SILENT if target.exists() else REFUSED
        return (
            SAME if _outcome(lambda: rrd_contents(target) == self.content) == SAME and _peer_reads(target) else SILENT
        )

    def verify(self, flip: Flip) -> str:
        """Verify it: what is whole for it must be read as what was written."""
        return REFUSED if _command("verify", self._copy(flip)) else self.read(flip).replace(REFUSED, SILENT)

    def ingest(self, flips: Sequence[Flip]) -> list[str]:
        """Ingest a folder of them, and read what is in the store."""
        landing, lake = self._folder / "landing", self._folder / "lake"
        landing.mkdir()
        paths = [self._copy(flip, landing / f"{number:04d}.rrd") for number, flip in enumerate(flips)]
        query = Ingest(landing, into=lake, executor="inline", settle=0, optimize=None).start(once=True)
        while not query.await_termination(5):
            pass
        store = RecordingStore.open(lake)
        kept = {entry.source_digest: entry for entry in store}
        return [self._kept(store, kept.get(digest_of_path(path))) for path in paths]

    def _kept(self, store: RecordingStore, entry: RecordingEntry | None) -> str:
        if entry is None:
            return REFUSED
        return _outcome(lambda: [kept_content(store, entry)] == self.content).replace(REFUSED, SILENT)

    def _copy(self, flip: Flip, path: Path | None = None) -> Path:
        """The file with one byte changed; with a ``path``, the recording is named after it."""
        data = self.data
        if path is not None:
            RrdReader(self._whole).stream().write_rrd(
                path, application_id="a", recording_id=path.stem, executor="inline"
            )
            data = self._bytes(path)
        path = path or self._folder / "flipped.rrd"
        at, change = flip
        path.write_bytes(data[:at] + bytes([data[at] ^ change]) + data[at + 1 :])
        return path

    def _bytes(self, path: Path) -> bytes:
        data = path.read_bytes()
        return data if self._digests else undigested(data)


def undigested(data: bytes) -> bytes:
    """An RRD without digests in its footer."""
    found = parse_stream_footer(data[-STREAM_FOOTER_SIZE:])
    assert found is not None
    footer = RrdFooter.FromString(data[found.start : found.start + found.length])
    for manifest in footer.manifests:
        manifest.ClearField("chunk_digests")
    payload = footer.SerializeToString()
    head = data[: found.start - MESSAGE_HEADER_SIZE] + message_header(MessageKind.END, len(payload))
    return head + payload + stream_footer(found.start, payload)


def _command(*arguments: object) -> int:
    return CliRunner().invoke(commands, [str(argument) for argument in arguments]).exit_code


def _outcome(is_right: Callable[[], bool]) -> str:
    try:
        return SAME if is_right() else SILENT
    except ChunkmillError:
        return REFUSED


def _peer_reads(path: Path) -> bool:
    """Whether Rerun's reader can read it, where it is there."""
    if importlib.util.find_spec("rerun") is None:
        return True
    from rerun.experimental import RrdReader as PeersReader

    try:
        return bool([chunk.to_record_batch() for chunk in PeersReader(path).stream().to_chunks()])
    except Exception:  # noqa: BLE001 (whatever it raises, it cannot read it)
        return False


def met(folder: Path, number: int, seed: int, *, digests: bool = True) -> Iterator[tuple[str, str, Flip, str]]:
    """Let every way meet so many flips: gives the way, where the byte lies, the flip, and what came of it."""
    flips = Flips(folder, digests=digests)
    draw = random.Random(seed)
    chosen = [(draw.randrange(len(flips.data)), draw.randrange(1, 256)) for _ in range(number)]
    ways: dict[str, Callable[[Flip], str]] = {
        "read": flips.read,
        "convert": flips.convert,
        "convert --verify": lambda flip: flips.convert(flip, "--verify"),
        "verify": flips.verify,
    }
    for way, meet in ways.items():
        for flip in chosen:
            yield way, flips.region(flip[0]), flip, meet(flip)
    for flip, outcome in zip(chosen, flips.ingest(chosen), strict=True):
        yield "ingest", flips.region(flip[0]), flip, outcome


class TableFlips:
    """A table and a view of it, and the files of both, one byte of which changes where it lies."""

    def __init__(self, folder: Path, *, digests: bool = True) -> None:
        tables = connect(str(folder), executor="inline")
        rows = [{"id": number, "robot": f"r{number % 7}", "value": number / 3} for number in range(300)]
        self._table = tables.create_table("rows", rows[:200])
        self._table.add(rows[200:])
        self._table.create_scalar_index("id")
        self._table.create_fts_index("robot")
        self._table.add_columns({"twice": _twice})
        self._table.backfill("twice")
        self._table.delete("id % 10 = 3")
        self._table.update("id = 4", {"robot": "other"})
        self._view = tables.create_materialized_view(
            "few", self._table.search(None).where("id > 100").select(["id", "robot"])
        )
        self._view.refresh()
        self.places = [folder / "rows.lance", folder / "few.lance"]
        if not digests:
            for place in self.places:
                shutil.rmtree(place / "_digests")
        self.files = sorted(path for place in self.places for path in place.rglob("*") if path.is_file())
        self.content = self._content()

    def verify(self, file: Path, flip: Flip) -> str:
        """Change a byte of a file, and verify: what is whole then must be read as what was written."""
        data, (at, change) = file.read_bytes(), flip
        file.write_bytes(data[:at] + bytes([data[at] ^ change]) + data[at + 1 :])
        try:
            if any(verify(place).faults for place in self.places):
                return REFUSED
            return _outcome(lambda: self._content() == self.content).replace(REFUSED, SILENT)
        finally:
            file.write_bytes(data)

    def _content(self) -> list[object]:
        """All that is read of the tables, by ways of their own."""
        words = [self._table.search(word, query_type="fts").to_arrow().to_pylist() for word in ("r1", "other")]
        found = [
            self._table.search(None).where(f"id = {number}").to_arrow().to_pylist() for number in range(0, 300, 20)
        ]
        return [self._table.to_arrow().to_pylist(), self._view.to_arrow().to_pylist(), words, found]


@udf(data_type=pa.int64())
def _twice(id: int) -> int:  # noqa: A002 (the name of a column)
    return 2 * id


def met_tables(folder: Path, number: int, seed: int, *, digests: bool = True) -> Iterator[tuple[str, str, Flip, str]]:
    """Change so many bytes of files of tables: gives what :func:`met` does, and the folder of a file as where it is."""
    flips = TableFlips(folder, digests=digests)
    draw = random.Random(seed)
    for _ in range(number):
        file = draw.choice(flips.files)
        flip = draw.randrange(file.stat().st_size), draw.randrange(1, 256)
        yield "verify", str(file.parent.relative_to(folder)), flip, flips.verify(file, flip)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--undigested", action="store_true")
    parser.add_argument("--tables", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    counts: Counter[tuple[str, str, str]] = Counter()
    meet = met_tables if options.tables else met
    with tempfile.TemporaryDirectory() as folder:
        for way, region, flip, outcome in meet(
            Path(folder), options.number, options.seed, digests=not options.undigested
        ):
            counts[way, region, outcome] += 1
            if outcome == SILENT and not options.undigested:
                print(f"{way}: byte {flip[0]} ^ {flip[1]:#04x} in the {region}: {outcome}")
    for (way, region, outcome), count in sorted(counts.items()):
        print(f"{way:17} {region:14} {outcome:8} {count:5}")
    return 1 if any(outcome == SILENT for _, _, outcome in counts) and not options.undigested else 0


if __name__ == "__main__":
    sys.exit(main())
