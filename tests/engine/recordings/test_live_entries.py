"""What is to be seen of a store: the same for its writer as for those who fold its tables anew."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from chunkmill.engine.recordings import Commit, RecordingEntry, StoreWriter
from chunkmill.engine.recordings.folder import RecordingsFolder
from chunkmill.engine.store import RecordingStore
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

recordings = st.fixed_dictionaries(
    {
        "id": st.sampled_from("abcde"),
        "source": st.sampled_from("xyz"),
        "digest": st.sampled_from("1234"),
        "kept": st.booleans(),
        "kind": st.sampled_from(["recording", "recording", "recording", "blueprint"]),
    }
)
batches = st.lists(recordings, max_size=5, unique_by=lambda r: (r["kind"], r["id"]))
histories = st.lists(st.one_of(batches, st.just("compact")), min_size=1, max_size=14)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories)
def test_tables_hold_what_the_writer_sees(history: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        writer = StoreWriter(RecordingsFolder(folder))
        seen: list[RecordingEntry] = []
        for at, step in enumerate(history, 1):
            if step == "compact":
                if writer.version is None:
                    continue
                writer.rewrite(list(writer.live), Commit("compact"))
            else:
                entries = [made(at, **recording) for recording in step]
                writer.publish(entries, Commit("ingest", "query", at))
                seen = replayed(seen, entries)
            store = RecordingStore.open(folder)
            assert [*store._entries()] == [*writer.live] == seen
            assert writer.version is not None
            assert store.version.recordings == len(store.recordings())
            assert store.version.rows == sum(e.rows for e in writer.live)
        assert len(list((Path(folder) / "versions").iterdir())) == writer.number


def replayed(seen: list[RecordingEntry], entries: list[RecordingEntry]) -> list[RecordingEntry]:
    """The rule itself: what comes takes the place of whatever it replaces."""
    for entry in entries:
        seen = [*(other for other in seen if not entry.takes_place_of(other)), entry]
    return seen


def made(batch: int, *, id: str, source: str, digest: str, kept: bool, kind: str) -> RecordingEntry:  # noqa: A002
    return RecordingEntry(
        recording_id=id,
        application_id="tests",
        kind=kind,
        segment_version=1,
        source=source,
        source_size=1,
        source_modified_ns=1,
        source_digest=digest,
        source_kept=kept,
        rrd=None,
        manifest="",
        manifest_offset=0,
        manifest_size=0,
        manifest_digest="",
        shards=(),
        chunks=1,
        rows=batch,
        bytes=10,
        query_id="query",
        batch=batch,
        added=float(batch),
    )
