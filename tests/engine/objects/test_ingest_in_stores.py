"""A landing folder and a store of recordings in an object store."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill.engine import Ingest, RecordingStore
from chunkmill.engine.ingest import Outcome
from chunkmill.engine.storage import ObjectUrl, bucket_of


def parquet_bytes(rows: int) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"speed": [float(i) for i in range(rows)]}), sink)
    return bytes(sink.getvalue().to_pybytes())


def put(url: str, data: bytes) -> None:
    place = ObjectUrl.of(url)
    bucket_of(place).put(place.key, data)


@pytest.mark.parametrize("done", ["keep", "delete"])
def test_from_a_bucket_into_a_bucket(done: str, bucket: str, tmp_path: Path) -> None:
    landing, lake = f"{bucket}/landing-{done}", f"{bucket}/lake-{done}"
    put(f"{landing}/day/a.parquet", parquet_bytes(3))
    put(f"{landing}/bad.mcap", b"no recording")

    def run() -> dict[str, Outcome]:
        ingest = Ingest(
            landing,
            into=lake,
            rrds=f"{bucket}/rrds-{done}",
            checkpoint=tmp_path / "checkpoint",
            executor="inline",
            settle=0,
            source_done=done,
        )
        query = ingest.start(once=True)
        query.await_termination(60)
        return {r.file.path.rpartition("/")[2]: r.outcome for b in query.recent for r in b.files}

    assert run() == {"a.parquet": Outcome.ADDED, "bad.mcap": Outcome.QUARANTINED}
    store = RecordingStore.open(lake)
    (entry,) = store
    assert entry.source == f"{landing}/day/a.parquet"
    assert sum(c.data.num_rows for c in store.recording(entry)) == 3 + 1
    rrd = ObjectUrl.of(f"{bucket}/rrds-{done}/day/a.rrd")
    assert bucket_of(rrd).exists(rrd.key)
    source = ObjectUrl.of(entry.source)
    assert bucket_of(source).exists(source.key) == (done == "keep")
    assert run() == {}
    put(f"{landing}/b.parquet", parquet_bytes(4))
    assert run() == {"b.parquet": Outcome.ADDED}
    assert RecordingStore.open(lake).version.number == 2
