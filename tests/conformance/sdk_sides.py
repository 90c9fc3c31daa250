"""The two sides of a comparison, and the recordings that both have."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import rerun as rr
import rerun.blueprint as rrb
from sdk_answers import without_ids
from sdk_recording_calls import Calls

KEY = pa.field("id", pa.int64(), metadata={"rerun:is_table_index": "true"})
ROWS = pa.schema([KEY, ("text", pa.string()), ("numbers", pa.list_(pa.float64()))])
"""The columns of a table with a key."""


@dataclass
class Side:
    """A client of one of the servers."""

    client: Any
    files: Path
    """Recordings, for both sides the same."""
    own: Path
    """A folder of this side, which its server can read."""

    def uri(self, name: str) -> str:
        """The URI of a file."""
        return (self.files / name).absolute().as_uri()


def write_files(folder: Path) -> None:
    """Write the recordings of the stories."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, number in (("one", 1), ("two", 2)):
        with recording(folder / f"{name}.rrd", name) as drive:
            drive.send_property("run", rr.AnyValues(number=number, label=name))
            drive.log("notes", rr.TextDocument(f"of {name}"), static=True)
            for frame in range(20 * number):
                drive.set_time("frame", sequence=frame)
                drive.set_time("time", timestamp=1e9 + frame)
                drive.log("points", rr.Points3D([[frame, 0, number]]))
                if frame % 3 == 0:
                    drive.log("speed", rr.Scalars(frame / 2))
                if frame == 9:
                    drive.log("points", rr.Clear(recursive=False))
    with recording(folder / "more.rrd", "one") as more:
        for frame in range(5):
            more.set_time("frame", sequence=frame)
            more.log("labels", rr.TextLog(f"frame {frame}"))
    with recording(folder / "otherwise.rrd", "three") as otherwise:
        otherwise.set_time("frame", duration=1)
        otherwise.log("speed", rr.Scalars(1))
    with recording(folder / "asset.rrd", "shape") as asset:
        asset.log("shape", rr.Boxes3D(half_sizes=[[1, 1, 1]]), static=True)
    for name in ("plain", "grid"):
        view = rrb.Spatial3DView(name=name) if name == "plain" else rrb.Grid(rrb.TextDocumentView(), name=name)
        rrb.Blueprint(view).save("tests", str(folder / f"{name}.rbl"))
    (folder / "text.rrd").write_text("no recording")
    (folder / "empty").mkdir(exist_ok=True)
    (folder / "many").mkdir(exist_ok=True)
    for name in ("one", "two"):
        (folder / "many" / f"{name}.rrd").write_bytes((folder / f"{name}.rrd").read_bytes())


class recording:  # noqa: N801 (it is used like a function)
    """A recording that is written to a file while the context is open."""

    def __init__(self, path: Path, name: str) -> None:
        self._stream = rr.RecordingStream("tests", recording_id=name)
        self._stream.save(path)

    def __enter__(self) -> Any:
        return self._stream

    def __exit__(self, *error: object) -> None:
        self._stream.flush()
        self._stream.disconnect()


def texts_of(call: Any, **options: Any) -> list[str]:
    """The names or entries of a list, as text; of hidden ones, that there are such."""
    return sorted({without_ids(str(one)) for one in call(**options)})


def attribute_calls(entry: Any) -> Calls:
    """What all entries have."""
    yield "name", lambda: entry.name
    yield "kind", lambda: entry.kind
    yield "text", lambda: repr(entry)
    yield "id", lambda: type(entry.id)
    yield "catalog", lambda: entry.catalog.url
    yield "is equal", lambda: [entry == entry.name, entry == entry.id, entry == "other", entry == 5]
    yield "hash", lambda: hash(entry)
    yield "created", lambda: [str(entry.created_at.tzinfo), abs(time.time() - entry.created_at.timestamp()) < 600]
    yield "updated", lambda: entry.updated_at >= entry.created_at
