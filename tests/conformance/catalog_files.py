"""Files of every way to write, side by side in one dataset of Rerun's own server: it takes them, and they answer alike.

    python tests/conformance/catalog_files.py FOLDER                        # writes the files, and asks
    ~/rerun033/bin/python tests/conformance/catalog_files.py FOLDER --ask   # asks the server of another release

The server merges the schemas of all files of a dataset: one whose footer calls the items of a fixed-size list nullable
is refused beside one that does not. Of equal times the row with the largest id answers, and of static values.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

INLINE = "inline"


def written(folder: Path, source: Path, executor: str) -> list[str]:
    """Write one file inline, and one by each way to write on ``executor``; gives their names."""
    from chunkmill.engine import ChunkStore, LazyChunkStream, OptimizationProfile
    from chunkmill.readers import McapReader, RrdReader

    profile = OptimizationProfile.OBJECT_STORE
    sources = folder.with_name(folder.name + "-sources")
    sources.mkdir(exist_ok=True)
    again: Callable[[], Any] = lambda: LazyChunkStream.from_iter(_chunks())  # noqa: E731
    ways: dict[str, Callable[[], Any]] = {
        "given": again,
        "mapped": lambda: again().map(_same),
        "store": lambda: ChunkStore.from_chunks(_chunks()).stream(),
        "collected": lambda: again().collect(executor=executor).stream().map(_same),
        "optimised": lambda: again().collect(executor=executor, optimize=profile).stream(),
        "read": lambda: RrdReader(_given("read")).stream().map(_same),
        "passed": lambda: RrdReader(_given("passed")).stream().drop(content="/nothing"),
        "by_footer": lambda: RrdReader(_given("by_footer")).store().stream().map(_same),
        "split": lambda: _split(again()),
    }
    if executor == "spark":
        ways["frame"] = lambda: LazyChunkStream.from_spark(again().to_spark(payload=True))

    def _given(name: str) -> Path:
        """A file that is only read: the server shows chunks of one id in one recording alone."""
        _write(again(), sources / f"{name}.rrd", INLINE)
        return sources / f"{name}.rrd"

    messages = [McapReader(source).stream() for _ in range(2)]
    _write(again(), folder / f"{INLINE}.rrd", INLINE)
    for name, stream in ways.items():
        _write(stream(), folder / f"{name}.rrd", executor)
    again().write_rrd(folder / "shards", application_id="a", recording_id="shards", shards=True, executor=executor)
    again().collect(into=folder / "kept", application_id="a", recording_id="kept", executor=executor)
    for kind, stream in zip((INLINE, executor), messages, strict=True):
        _write(stream, folder / f"mcap_{kind}.rrd", kind)
    commanded = _commanded(folder, sources, source, again, executor)
    return sorted([*ways, *commanded])


def _commanded(folder: Path, sources: Path, source: Path, again: Callable[[], Any], executor: str) -> list[str]:
    """What the commands write: folders of RRDs and of MCAPs, converted, and brought into stores that are exported."""
    from chunkmill.engine.cli.commands import commands
    from chunkmill.engine.store import RecordingStore

    def run(*arguments: object) -> None:
        commands.main([*map(str, arguments), "--executor", executor], standalone_mode=False)

    made = []
    for way in ("converted", "ingested", "stored"):
        landing = sources / way
        landing.mkdir()
        for name in (f"{way}_{i}" for i in range(2)):
            _write(again(), landing / f"{name}.rrd", INLINE)
            made.append(name)
        shutil.copy(source, landing / f"mcap_{way}.mcap")
    run("convert", sources / "converted", "-o", folder / "converted", "--application-id", "a")
    settled = ("--once", "--settle", "10ms", "--application-id", "a")
    run("ingest", sources / "ingested", "--rrds", folder / "ingested", *settled)
    run("ingest", sources / "stored", "--into", sources / "lake", "--optimize", "none", *settled)
    run("compact", sources / "lake", "--optimize", "object-store")
    lake = RecordingStore.open(sources / "lake")
    for entry in lake.recordings():
        name = entry.recording_id if entry.recording_id in made else "mcap_stored"
        _write(lake.recording(entry).stream(), folder / f"{name}.rrd", executor)
    return made


def _chunks() -> list[Any]:
    """Positions whose items are not null, twice at equal times, and a static value that is overwritten."""
    import pyarrow as pa
    from chunkmill.engine.chunk import Chunk, ComponentColumn, ComponentDescriptor, TimeColumn

    position = pa.list_(pa.field("item", pa.float32(), nullable=False), 3)
    translation = ComponentDescriptor(
        "Transform3D:translation", "rerun.archetypes.Transform3D", "rerun.components.Translation3D"
    )
    made = []
    for i in range(40):
        values = pa.array([[[i, i + 0.5, row]] for row in range(4)], pa.list_(position))
        times = TimeColumn("frame", sequence=[i // 2 + row for row in range(4)])
        made.append(Chunk.from_columns("/robot", [times], [ComponentColumn(translation, values)]))
    return [*made, *(Chunk.from_columns("/limits", [], [ComponentColumn("limit", [[float(i)]])]) for i in range(3))]


def _same(chunk: Any) -> Any:
    return chunk


def _split(stream: Any) -> Any:
    selected, rest = stream.split(content="/limits")
    return type(stream).merge(rest.map(_same), selected.map(_same))


def _write(stream: Any, path: Path, executor: str) -> None:
    stream.write_rrd(path, application_id="a", recording_id=path.stem, executor=executor)


def answers(folder: Path) -> dict[str, Any]:
    """What Rerun's server answers of each recording in the folder, all of which are in one dataset."""
    from rerun.server import Server

    files = [str(p) for p in sorted(folder.rglob("*.rrd"))]
    with Server(host="127.0.0.1", datasets={"drives": files}) as server:
        dataset = server.client().get_dataset("drives")
        found: dict[str, list[str]] = {segment: [] for segment in dataset.segment_ids()}
        for index in ("frame", "message_log_time", None):
            for row in dataset.reader(index=index, fill_latest_at=index is not None).to_arrow_table().to_pylist():
                segment = row.pop("rerun_segment_id")
                found.setdefault(segment, []).append(json.dumps(row, default=str, sort_keys=True))
    return {segment: sorted(rows) for segment, rows in found.items()}


def disagreements(found: dict[str, Any]) -> list[str]:
    """The recordings whose answers are not those of the file that was written inline."""
    # An ingested MCAP has an id that is made of its digest.
    first = {s: found["mcap_inline" if s.startswith("mcap_") or "-" in s else INLINE] for s in found}
    return [segment for segment in found if found[segment] != first[segment]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ask", action="store_true", help="the files are there already")
    parser.add_argument("--executor", default="spark")
    parser.add_argument("--source", type=Path, default=Path(__file__).parents[1] / "data" / "demo.mcap")
    options = parser.parse_args()
    if not options.ask:
        options.folder.mkdir(parents=True, exist_ok=True)
        written(options.folder, options.source, options.executor)
    found = answers(options.folder)
    wrong = disagreements(found)
    print(json.dumps({"segments": {name: len(rows) for name, rows in found.items()}, "differ": wrong}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
