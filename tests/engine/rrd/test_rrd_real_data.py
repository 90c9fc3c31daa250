"""Real recordings: ours and Rerun's reader agree about each of them, and about what we made of it."""

from __future__ import annotations

import hashlib
import json
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

REPOSITORY = Path(__file__).resolve().parents[3]
OWN = REPOSITORY / "tests" / "data" / "rrd"
pytestmark = pytest.mark.filterwarnings("ignore::chunkmill.engine.errors.ReadWarning")


def shared() -> Path:
    import os

    return Path(os.environ.get("CHUNKMILL_TEST_DATA") or REPOSITORY.parent / "shared" / "data")


def recordings() -> list[Path]:
    found = {p.name: p for folder in (OWN, shared() / "rrd") if folder.is_dir() for p in sorted(folder.iterdir())}
    query = shared().parent / "golden" / "query" / "rrd"
    found |= {p.name: p for p in (sorted(query.glob("*.rrd")) if query.is_dir() else [])}
    return [p for p in found.values() if p.suffix in (".rrd", ".rbl")]


OLD = {"rerun__example.4bb525.rrd": "0.12.0", "rerun__example.rrd": "0.23.0-alpha.1", "rnl__output_map.rrd": "0.22.1"}
DRAFT = "rerun__file"
EMPTY_FOOTER = "unity-rerun-sdk__min_text_log"
"""Its footer lists none of its chunks: Rerun shows no recording, we read it without the footer."""
SMALL = 1_000_000
EVERY = [pytest.param(p, id=p.name) for p in recordings() if p.name not in OLD]


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


def golden(path: Path) -> Any:
    """What the real reader answered, or None where nobody asked it."""
    answer = shared().parent / "golden" / "content" / "0.33.1" / "rrd" / f"{path.name}.json"
    return json.loads(answer.read_text()) if answer.is_file() else None


@pytest.mark.parametrize("path", [p for p in EVERY if isinstance(golden(p.values[0]), list)])
def test_the_golden_content(path: Path) -> None:
    """Rows of each component, as the real reader counted them."""
    wanted = golden(path)
    found = {k: len(v) for k, v in ours(path).lines.items()}
    if path.name.startswith(EMPTY_FOOTER):
        assert wanted == [] and sum(found.values()) == 2
        return
    assert found == {(c["entity"], c["static"], c["component"]): c["rows"] for c in wanted}


@pytest.mark.parametrize("path", [pytest.param(p, id=p.name) for p in recordings() if p.name in OLD])
def test_older_formats_name_their_version(path: Path) -> None:
    with pytest.raises(UnsupportedError, match=OLD[path.name].replace(".", r"\.")) as caught:
        RrdFile(path).stores()
    assert "rerun rrd migrate" in str(caught.value.hint)


def test_headers_from_footers_are_those_of_the_chunks() -> None:
    count = 0
    for path in recordings():
        if path.name in OLD or not (file := RrdFile(path)).has_footer:
            continue
        for store in file.stores():
            for entry, chunk in zip(file.entries(store) or [], file.chunks(store), strict=True):
                data = chunk.data
                header = type(chunk).from_data(data).header
                assert entry.header.timelines == header.timelines
                assert (entry.header.chunk_id, entry.header.num_rows) == (header.chunk_id, header.num_rows)
                known = {c.descriptor: c for c in header.components}
                for component in entry.header.components:
                    assert component.ranges == known[component.descriptor].ranges
                    assert component.datatype == known[component.descriptor].datatype
                    assert component.is_empty in (None, known[component.descriptor].is_empty)
                count += 1
    assert count > 10
