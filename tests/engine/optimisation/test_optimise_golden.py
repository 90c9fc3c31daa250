"""Real recordings, compacted as Rerun compacts them: the counts it left, and what the installed release leaves."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import pytest
from chunk_making import content
from chunkmill.engine.chunk import Chunk
from chunkmill.engine.optimisation.passes import optimised
from chunkmill.engine.optimisation.profile import OptimizationProfile
from chunkmill.readers import McapReader
from places import DATA, recordings

RECORDINGS = json.loads((DATA / "golden" / "optimize_0.33.1.json").read_text())
"""By recording and profile: the chunks and rows that Rerun left."""


def at_hand(*patterns):
    """The recordings of the patterns, as parameters: their path and name."""
    found = recordings(*patterns)
    return pytest.mark.parametrize(
        ("path", "name"), [pytest.param(p.values[0], p.id, id=p.id, marks=p.marks) for p in found if p.id in RECORDINGS]
    )


PROFILES = {
    "collect": None,
    "LIVE": OptimizationProfile.LIVE,
    "OBJECT_STORE": OptimizationProfile.OBJECT_STORE,
    "OBJECT_STORE, split_size_ratio 10": replace(OptimizationProfile.OBJECT_STORE, split_size_ratio=10.0),
}

DECODED_OTHERWISE = {
    "generated/rob_many_chunks.mcap",
    "generated/ros2_compressed_image.mcap",
    "generated/ros2_compressed_mixed.mcap",
    "generated/ros2_image_encodings.mcap",
    "generated/ros2_image_mixed.mcap",
    "generated/ros2_misc.mcap",
    "generated/ros2_tf.mcap",
    "generated/ros2_tf_static_empty.mcap",
    "mcap/pj-mcap-server__test_embedded_timestamp.mcap",
    "mcap/rerun__rosbag2_2025_09_10-13_03_56_0.mcap",
}
"""The installed release reads other chunks from these than the one that made the golden counts."""

pytestmark = pytest.mark.filterwarnings("ignore")


def _peer():
    return pytest.importorskip("rerun.chunk", reason="rerun-sdk is the peer that reads the recordings")


def _read(path):
    peer = _peer()
    reader = peer.McapReader if path.suffix == ".mcap" else peer.RrdReader
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return reader(str(path)).stream().to_chunks()


@at_hand("*/*.*")
def test_counts(path, name):
    batches = [c.to_record_batch() for c in _read(path)]
    light = sum(b.nbytes for b in batches) < 100_000
    for profile, arguments in PROFILES.items():
        chunks = [Chunk.from_record_batch(b) for b in batches]
        out = optimised(chunks, arguments)
        if light:
            assert _values(out) == _values(chunks)
        if name in DECODED_OTHERWISE:
            continue
        expected_chunks, expected_rows = RECORDINGS[name][profile]
        assert len(out) <= 1.1 * expected_chunks, profile
        assert sum(c.num_rows for c in out) == expected_rows, profile


def _values(chunks):
    """All values of temporal chunks but the marks of key frames, which a profile adds."""
    found = content(c for c in chunks if not c.is_static)
    return {key: count for key, count in found.items() if key[3].component != "VideoStream:is_keyframe"}


FOUND_MORE = {
    "generated/fox_frame_transforms_empty.mcap",
    "generated/ros2_compressed_mixed.mcap",
    "generated/ros2_image_encodings.mcap",
    "generated/ros2_image_mixed.mcap",
    "mcap/amber__soccer_goal_12.aae77a.mcap",
    "mcap/pj-mcap-server__test_embedded_timestamp.mcap",
}
"""Recordings in which our reader finds messages that the one which made the golden counts lost."""

FEWER_ROWS = {
    "generated/ros2_pointcloud2.mcap",
    "generated/ros2_pointcloud2_noxyz.mcap",
    "mcap/rerun__rosbag2_2025_09_10-13_03_56_0.mcap",
}
"""Recordings with point clouds: one row for a message, where the golden counts have several."""


@at_hand("*/*.mcap")
def test_counts_from_our_own_reader(path, name):
    chunks = McapReader(path).stream().to_chunks()
    for profile, arguments in PROFILES.items():
        out = optimised(list(chunks), arguments)
        expected_chunks, expected_rows = RECORDINGS[name][profile]
        rows = sum(c.num_rows for c in out)
        if name in FOUND_MORE:
            assert rows > expected_rows, profile
            continue
        assert len(out) <= 1.1 * expected_chunks, profile
        assert rows < expected_rows if name in FEWER_ROWS else rows == expected_rows, profile


@at_hand("generated/*.mcap")
def test_summaries_are_those_of_the_installed_release(path, name):
    peer = _peer()
    given = _read(path)
    theirs = {
        "collect": None,
        "LIVE": peer.OptimizationProfile.LIVE,
        "OBJECT_STORE": replace(peer.OptimizationProfile.OBJECT_STORE, split_size_ratio=None),
        "OBJECT_STORE, split_size_ratio 10": replace(peer.OptimizationProfile.OBJECT_STORE, split_size_ratio=10.0),
    }
    for profile, arguments in PROFILES.items():
        out = optimised([Chunk.from_record_batch(c.to_record_batch()) for c in given], arguments)
        store = peer.LazyChunkStream.from_iter(iter(given)).collect(optimize=theirs[profile])
        assert sorted(map(_line, out)) == sorted(store.summary().split("\n")), profile


def _line(chunk):
    timelines = sorted(chunk.timeline_names)
    columns = sorted([*timelines, *(c.descriptor.component for c in chunk.data.components)])
    quoted = [", ".join(f"'{n}'" for n in names) for names in (timelines, columns)]
    return (
        f"{chunk.entity_path} rows={chunk.num_rows} static={chunk.is_static} timelines=[{quoted[0]}] cols=[{quoted[1]}]"
    )
