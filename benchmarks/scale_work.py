"""What a deployment is given to do, in a driver process of its own: ``python scale_work.py JOB-AS-JSON``.

Prints what it took, as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class ScaleJob:
    """Recordings of a folder or bucket, each to an RRD; or, where ``recordings`` is 0, one large recording."""

    master: str
    source: str
    out: str
    recordings: int

    def names(self) -> list[str]:
        """The recordings, without their suffix."""
        return [f"drive-{i:05d}" for i in range(self.recordings)] or ["large"]

    @property
    def options(self) -> dict[str, Any]:
        """How to run it."""
        return {"executor": "inline"} if self.master == "inline" else {"executor": "spark", "master": self.master}


def convert(job: ScaleJob) -> dict[str, Any]:
    """Do it; the session is started first, and counts by itself."""
    began = time.perf_counter()
    if job.master != "inline":
        from chunkmill.engine.spark import running_session

        running_session(job.master, None).range(1).count()
    started, cpu = time.perf_counter(), time.process_time()
    reports = list(_convert_folder(job) if job.recordings else _convert_large(job))
    return {
        "start": started - began,
        "seconds": time.perf_counter() - started,
        "driver_cpu": time.process_time() - cpu,
        "splits": sum(r.splits for r in reports),
        "rows": sum(r.rows for r in reports),
        "bytes_in": sum(r.bytes_in for r in reports),
        "plan": sum(r.phases["plan"] for r in reports),
        "commit": sum(r.phases["commit"] for r in reports),
    }


def _convert_folder(job: ScaleJob) -> Iterator[Any]:
    from chunkmill.engine import StoreEntry
    from chunkmill.engine.execution import RunOptions, write_recordings
    from chunkmill.engine.locations import located
    from chunkmill.engine.stream.lazy_stream import plan_recording
    from chunkmill.readers import McapReader

    planned = (
        plan_recording(
            f"{job.out}/{name}.rrd",
            [(StoreEntry("recording", "scale", name), McapReader(f"{job.source}/{name}.mcap").stream())],
            executor=job.options["executor"],
        )
        for name in job.names()
    )
    options = RunOptions(job.options["executor"], job.options.get("master"))
    for outcome in write_recordings(planned, located(job.out), options):
        if outcome.report is None:
            assert outcome.error is not None
            raise outcome.error
        yield outcome.report


def _convert_large(job: ScaleJob) -> Iterator[Any]:
    from chunkmill.readers import McapReader

    stream = McapReader(f"{job.source}/large.mcap").stream()
    yield stream.write_rrd(f"{job.out}/large.rrd", application_id="scale", recording_id="large", **job.options)


def as_json(job: ScaleJob) -> str:
    """The job as an argument."""
    return json.dumps(asdict(job))


if __name__ == "__main__":
    print(json.dumps(convert(ScaleJob(**json.loads(sys.argv[1])))))
