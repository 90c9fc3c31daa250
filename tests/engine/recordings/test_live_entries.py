"""What is to be seen of a store: the same for its writer as for those who fold its tables anew."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from chunkmill.engine.recordings import Commit, LiveEntries, RecordingEntry, StoreWriter
from chunkmill.engine.recordings.entries import rows_of
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


changes = st.fixed_dictionaries(
    {
        "id": st.sampled_from("abc"),
        "source": st.sampled_from("xy"),
        "digest": st.sampled_from(["1", "2", ""]),
        "kept": st.booleans(),
        "kind": st.sampled_from(["recording", "recording", "blueprint"]),
        "layer": st.sampled_from(["base", "base", "poses"]),
        "removed": st.sampled_from([False, False, False, True]),
    }
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), changes), max_size=24))
def test_columns_say_what_the_rule_says_of_each_entry_in_turn(rows: list[tuple[int, Any]]) -> None:
    """Those of one moment are of one batch, and an entry that stays with another source keeps its moment."""
    entries = [made(batch, **recording) for batch, recording in rows]
    expected = in_turn(entries)
    read = LiveEntries.of_rows(rows_of(entries))
    added = LiveEntries(entries)
    half = LiveEntries.of_rows(rows_of(entries[: len(entries) // 2]))
    for entry in entries[len(entries) // 2 :]:
        half.add(entry)
    for live in (read, added, half):
        assert [*live] == expected
        assert len(live) == len(expected)
        assert live.table.num_rows == len(expected)
        assert live.recordings == len({e.recording_id for e in expected if e.kind == "recording"})
        assert (live.rows, live.chunks, live.bytes) == tuple(
            sum(getattr(e, name) for e in expected) for name in ("rows", "chunks", "bytes")
        )
        for entry in expected:
            assert live.get(entry.key) == entry
        for source in "xy":
            ours = [e for e in expected if e.source_kept and e.source == source]
            assert sorted(live.of_source(source), key=repr) == sorted(ours, key=repr)
        for name in "abc":
            ours = [e for e in expected if e.kind == "recording" and e.recording_id == name]
            assert sorted(live.of_recording(name), key=repr) == sorted(ours, key=repr)


def in_turn(entries: list[RecordingEntry]) -> list[RecordingEntry]:
    """One entry after the other; one of the same key and moment stays where that was."""
    seen: list[RecordingEntry] = []
    for entry in entries:
        places = [at for at, other in enumerate(seen) if (other.key, other.added) == (entry.key, entry.added)]
        if places and not entry.removed:
            seen[places[0]] = entry
            seen = [other for other in seen if other is entry or not entry.takes_place_of(other)]
        else:
            seen = [*(other for other in seen if not entry.takes_place_of(other)), *([] if entry.removed else [entry])]
    return seen


def replayed(seen: list[RecordingEntry], entries: list[RecordingEntry]) -> list[RecordingEntry]:
    """The rule itself: what comes takes the place of whatever it replaces."""
    for entry in entries:
        seen = [*(other for other in seen if not entry.takes_place_of(other)), entry]
    return seen


def made(batch: int, *, id: str, source: str, digest: str, kept: bool, kind: str, **more: Any) -> RecordingEntry:  # noqa: A002
    return RecordingEntry(
        recording_id=id,
        application_id="tests",
        kind=kind,
        segment_version=1,
        source=source,
        source_size=1,
        source_modified_ns=1,
        source_digest=digest,
        source_kept=kept and digest != "",
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
        **more,
    )
