"""Real recordings: ours and Rerun's reader agree about each of them, and about what we made of it."""

from __future__ import annotations

import hashlib
import json
import lzma
import subprocess
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine.errors import UnsupportedError
from chunkmill.engine.rrd import RrdFile, RrdWriter
from places import DATA, recordings

pytestmark = pytest.mark.filterwarnings("ignore::chunkmill.engine.errors.ReadWarning")
RECORDINGS = recordings("rrd/*.rrd", "rrd/*.rbl", "rrd/queries/*.rrd")
GOLDEN: dict[str, Any] = json.loads(lzma.decompress((DATA / "golden" / "content_0.33.1.json.xz").read_bytes()))
"""What the real reader answered; of some nobody asked it, and on others it failed."""

OLD = {"rerun__example.4bb525.rrd": "0.12.0", "rerun__example.rrd": "0.23.0-alpha.1", "rnl__output_map.rrd": "0.22.1"}
DRAFT = "rerun__file"
EMPTY_FOOTER = "unity-rerun-sdk__min_text_log"
"""Its footer lists none of its chunks: Rerun shows no recording, we read it without the footer."""
SMALL = 1_000_000
EVERY = [p for p in RECORDINGS if p.values[0].name not in OLD]


class Digest:
    """Everything that a recording holds, chunk boundaries and ids aside."""

    def __init__(self, chunks: Iterable[Any]) -> None:
        self.lines: dict[tuple[str, bool, str], list[str]] = {}
        for chunk in chunks:
            self._add(chunk)

    def _add(self, chunk: Any) -> None:
        batch = chunk.to_record_batch()
        kinds = {f.name: (f.metadata or {}).get(b"rerun:kind") for f in batch.schema}
        index = sorted(n for n, kind in kinds.items() if kind == b"index")
        times = {n: batch.column(n).cast(pa.int64()).to_pylist() for n in index}
        for name, kind in kinds.items():
            if kind in (b"index", b"control"):
                continue
            metadata = batch.schema.field(name).metadata
            about = [str(batch.column(name).type), *(metadata.get(k, b"").decode() for k in KEYS), str(index)]
            for row, value in enumerate(batch.column(name).to_pylist()):
                if value is not None:
                    key = (chunk.entity_path, bool(chunk.is_static), metadata[b"rerun:component"].decode())
                    text = f"{about}{[times[n][row] for n in index]}{value!r}"
                    self.lines.setdefault(key, []).append(hashlib.blake2b(text.encode()).hexdigest())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Digest) and self.sorted() == other.sorted()

    __hash__ = None  # type: ignore[assignment]

    def sorted(self) -> dict[tuple[str, bool, str], list[str]]:
        return {k: sorted(v) for k, v in self.lines.items()}


KEYS = (b"rerun:archetype", b"rerun:component", b"rerun:component_type")


def ours(path: Path) -> Digest:
    file = RrdFile(path)
    return Digest(c for s in file.stores() for c in file.chunks(s))


def theirs(path: Path) -> Digest:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from rerun.chunk import RrdReader

        reader = RrdReader(path)
        return Digest(c for s in [*reader.recordings(), *reader.blueprints()] for c in reader.stream(store=s))


def rewritten(path: Path, target: Path) -> Path:
    file = RrdFile(path)
    with RrdWriter(target) as writer:
        for store in file.stores():
            writer.begin_store(store)
            for chunk in file.chunks(store):
                writer.append(store, chunk)
        writer.finish()
    return target


@pytest.mark.parametrize("path", EVERY)
def test_rewritten_recordings_hold_the_same(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("rerun")
    copy = rewritten(path, tmp_path / "copy.rrd")
    before = ours(path)
    assert theirs(copy) == before
    if path.stat().st_size < SMALL:
        assert ours(copy) == before
    if not path.name.startswith((DRAFT, EMPTY_FOOTER)):
        assert theirs(path) == before
    if before.lines:
        rerun = Path(sys.executable).with_name("rerun")
        result = subprocess.run([rerun, "rrd", "verify", copy], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("path", [p for p in EVERY if isinstance(GOLDEN.get(p.id), list)])
def test_the_golden_content(path: Path) -> None:
    """Rows of each component, as the real reader counted them."""
    wanted = GOLDEN[f"rrd/{path.name}"]
    found = {k: len(v) for k, v in ours(path).lines.items()}
    if path.name.startswith(EMPTY_FOOTER):
        assert wanted == [] and sum(found.values()) == 2
        return
    assert found == {(c["entity"], c["static"], c["component"]): c["rows"] for c in wanted}


@pytest.mark.parametrize("path", [p for p in RECORDINGS if p.values[0].name in OLD])
def test_older_formats_name_their_version(path: Path) -> None:
    with pytest.raises(UnsupportedError, match=OLD[path.name].replace(".", r"\.")) as caught:
        RrdFile(path).stores()
    assert "rerun rrd migrate" in str(caught.value.hint)


def with_footer(param: Any) -> bool:
    path = param.values[0]
    return path.name not in OLD and not path.name.startswith((DRAFT, EMPTY_FOOTER)) and RrdFile(path).has_footer


@pytest.mark.parametrize("path", [p for p in RECORDINGS if with_footer(p)])
def test_headers_from_footers_are_those_of_the_chunks(path: Path) -> None:
    file = RrdFile(path)
    headers = [e.header for store in file.stores() for e in file.entries(store) or []]
    chunks = [chunk for store in file.stores() for chunk in file.chunks(store)]
    assert len(headers) == len(chunks) > 0
    for told, chunk in zip(headers, chunks, strict=True):
        header = type(chunk).from_data(chunk.data).header
        assert told.timelines == header.timelines
        assert (told.chunk_id, told.num_rows) == (header.chunk_id, header.num_rows)
        known = {c.descriptor: c for c in header.components}
        for component in told.components:
            assert component.ranges == known[component.descriptor].ranges
            assert component.datatype == known[component.descriptor].datatype
            assert component.is_empty in (None, known[component.descriptor].is_empty)
