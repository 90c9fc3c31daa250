"""A served lake and Rerun's own server, asked by the SDK: the same answers to each call, for one recording."""

from __future__ import annotations

from pathlib import Path

import pytest
from chunkmill.engine.catalog.server import CatalogService, ServiceOptions, start

pytest.importorskip("rerun.catalog")
server = pytest.importorskip("rerun.server")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_served_recording_answers_as_with_rerun(tmp_path: Path) -> None:
    from rerun.catalog import CatalogClient
    from sdk_calls import answered, answers, differences, registered

    path = written(tmp_path / "drive.rrd")
    with (
        start(CatalogService(tmp_path / "lake", ServiceOptions(readable=[str(tmp_path)]))) as running,
        server.Server(host="127.0.0.1") as peer,
    ):
        (ours, refused), (theirs, _) = (
            registered(client, "drives", path) for client in (CatalogClient(running.url), peer.client())
        )
        assert refused is None
        assert list(differences("drive", ours, theirs)) == []
        failed = [call for call, ask in answers(ours) if "error" in answered(ask)]
        assert failed == []


def written(path: Path) -> Path:
    import rerun as rr

    recording = rr.RecordingStream("tests", recording_id="drive")
    recording.save(path)
    recording.log("notes", rr.TextDocument("static"), static=True)
    for frame in range(20):
        recording.set_time("frame", sequence=frame)
        recording.log("points", rr.Points3D([[frame, 0, 0]]))
        if frame % 3 == 0:
            recording.log("speed", rr.Scalars(frame / 2))
    recording.flush()
    recording.disconnect()
    return path
