"""RRD to RRD: chunks that nobody looks into are copied, not decoded.

The recording of the stated ratios has 400 MB: ``CHUNKMILL_BENCH_MB=400``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from chunkmill.engine.store import OptimizationProfile
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.lenses import MutateLens, Selector
from chunkmill.readers import RrdReader
from conftest import Duel

peer = pytest.importorskip("rerun.chunk")


def keep_robot(stream: Any, _: Any) -> Any:
    return stream.filter(content="/robot/**")


def drop_one_camera(stream: Any, _: Any) -> Any:
    return stream.drop(content="/camera_0/**")


def split_and_merge(stream: Any, kind: Any) -> Any:
    robot, cameras = stream.split(content="/robot/**")
    return kind.merge(robot, cameras.drop(content="/camera_0/**"))


def rename(stream: Any, _: Any) -> Any:
    return stream


CASES = [(keep_robot, 0.8), (drop_one_camera, 0.6), (split_and_merge, 0.6), (rename, None)]


@pytest.mark.parametrize("recording_id", ["bench", "another"])
@pytest.mark.parametrize(("pipeline", "bar"), CASES, ids=[p.__name__ for p, _ in CASES])
def test_passing(
    pipeline: Any, bar: float | None, recording_id: str, benchmark: Any, duel: Duel, recording: Path, tmp_path: Path
) -> None:
    """Guards the pass-through of chunks that nobody looks into, into the same recording and into another."""

    def ours() -> None:
        pipeline(RrdReader(recording).stream(), LazyChunkStream).write_rrd(
            tmp_path / "ours.rrd", application_id="bench", recording_id=recording_id, executor="spark"
        )

    def theirs() -> None:
        pipeline(peer.RrdReader(recording).stream(), peer.LazyChunkStream).write_rrd(
            tmp_path / "theirs.rrd", application_id="bench", recording_id=recording_id
        )

    duel.name = f"rrd_{pipeline.__name__}{'' if recording_id == 'bench' else '_as_another'}"
    duel.run(benchmark, ours, theirs, bar=bar)


def double(values: Any) -> Any:
    """A function of the user's, on a whole column."""
    return pc.multiply(values, 2.0)


def test_lens(benchmark: Any, duel: Duel, recording: Path, tmp_path: Path) -> None:
    """Guards chunks that are decoded, changed and encoded anew, beside others that are forwarded."""

    def ours() -> None:
        lens = MutateLens("Scalars:scalars", Selector(".").pipe(double))
        RrdReader(recording).stream().lenses([lens], output_mode="forward_unmatched").write_rrd(
            tmp_path / "ours.rrd", application_id="bench", recording_id="bench", executor="spark"
        )

    def theirs() -> None:
        lens = peer.MutateLens("Scalars:scalars", peer.Selector(".").pipe(double))
        peer.RrdReader(recording).stream().lenses([lens], output_mode="forward_unmatched").write_rrd(
            tmp_path / "theirs.rrd", application_id="bench", recording_id="bench"
        )

    duel.name = "rrd_lens_on_all_scalars"
    duel.run(benchmark, ours, theirs, bar=0.9)


def test_optimized(benchmark: Any, duel: Duel, recording: Path, tmp_path: Path) -> None:
    """Guards compaction for object stores."""

    def ours() -> None:
        store = RrdReader(recording).stream().collect(optimize=OptimizationProfile.OBJECT_STORE, executor="spark")
        store.write_rrd(tmp_path / "ours.rrd", application_id="bench", recording_id="bench")

    def theirs() -> None:
        store = peer.RrdReader(recording).stream().collect(optimize=peer.OptimizationProfile.OBJECT_STORE)
        store.stream().write_rrd(tmp_path / "theirs.rrd", application_id="bench", recording_id="bench")

    duel.name = "rrd_optimized_for_object_stores"
    duel.run(benchmark, ours, theirs, bar=0.8)
