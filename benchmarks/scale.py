"""One pipeline under every deployment of Spark: the same recordings, and what each costs the driver and the workers.

    python benchmarks/scale.py                              # 1,000 recordings, and one of 4 GB, under all deployments
    python benchmarks/scale.py --size-mb 0 'local[2]'       # the folder alone, under one
    python benchmarks/scale.py --recordings 0 'local[2]'    # the large recording alone
    python benchmarks/scale.py --s3 'local[2]' standalone   # from and to an S3 server on loopback

Deployments: ``inline``, ``local[1]``, ``local[2]``, ``local-cluster`` (two executors of one core), ``standalone``
(a master and two workers, started from pip's pyspark), ``connect`` (a Spark Connect server, and a client without a
JVM). Each piece of work has a driver process of its own, and gives a line: seconds of the session's start and of the
work; the driver's peak memory and processor time; the same of the JVMs; the largest worker; the peak of all processes
together (PSS); splits; seconds of planning and of the commit; rows; and a digest of all values that were written, which
must be the same for all. Ends with 1 where it is not. Linux only; 12 GB of disk for the large recording.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deployments import DEPLOYMENTS, deployed, free_port, wait_for_port
from process_tree import Usage, watching
from s3_on_disk import BUCKET
from scale_work import ScaleJob, as_json
from written import digest_of

SMALL: Final = Path(__file__).resolve().parent.parent / "tests" / "data" / "mcap" / "rosbag2__talker.mcap"
HEAD: Final = (
    f"{'deployment':14} {'work':7} {'start s':>7} {'work s':>7} {'driver MB':>9} {'cpu s':>6} {'jvm MB':>7} "
    f"{'cpu s':>6} {'worker MB':>9} {'all MB':>7} {'splits':>6} {'plan s':>6} {'commit s':>8} {'rows':>10}  digest"
)


@dataclass(frozen=True)
class Places:
    """Where the work finds its recordings and leaves its RRDs: paths or URLs; and the S3 server, if there is one."""

    source: str
    out: str
    server: str | None = None

    def requests(self) -> dict[str, int]:
        """How many requests the S3 server was sent, by kind."""
        if self.server is None:
            return {}
        with urllib.request.urlopen(f"{self.server}/requests") as answer:
            found: dict[str, int] = json.load(answer)
        return found


def main() -> int:
    """Run every deployment that was asked for, each piece of work in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("deployments", nargs="*", metavar="DEPLOYMENT", help=f"of {', '.join(DEPLOYMENTS)}; all")
    parser.add_argument("--recordings", type=int, default=1000, help="0 leaves the folder out")
    parser.add_argument("--size-mb", type=int, default=4000, help="of the large recording; 0 leaves it out")
    parser.add_argument("--s3", action="store_true", help="from and to an S3 server on loopback")
    parser.add_argument("--work", type=Path, help="a folder with room for the recordings; default: a temporary one")
    given = parser.parse_args()
    if unknown := set(given.deployments) - set(DEPLOYMENTS):
        parser.error(f"no deployment: {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as made:
        work = given.work or Path(made)
        works = prepare(work, given.recordings, given.size_mb)
        with places_in(work, s3=given.s3) as places:
            return compare(given.deployments or list(DEPLOYMENTS), work, works, places)


def prepare(work: Path, recordings: int, size_mb: int) -> dict[str, int]:
    """Make the recordings, links to a small one and a large one; gives the names of the pieces of work."""
    folder = work / "recordings"
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(recordings):
        target = folder / f"drive-{i:05d}.mcap"
        if not target.exists():
            target.symlink_to(SMALL)
    if size_mb:
        from made_recordings import write_mixture

        large = work / f"large-{size_mb}.mcap"
        if not large.exists():
            write_mixture(large, size_mb)
        (folder / "large.mcap").unlink(missing_ok=True)
        (folder / "large.mcap").symlink_to(large.resolve())
    return {**({"folder": recordings} if recordings else {}), **({"large": 0} if size_mb else {})}


@contextmanager
def places_in(work: Path, *, s3: bool) -> Iterator[Places]:
    """Folders in ``work``, or a bucket of a server on loopback that keeps its objects there."""
    if not s3:
        yield Places(str(work / "recordings"), str(work / "out"))
        return
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    os.environ.update(
        {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": "loopback",
            "AWS_SECRET_ACCESS_KEY": "loopback",
            "AWS_REGION": "us-east-1",
        }
    )
    server = Path(__file__).parent / "s3_on_disk.py"
    offered = f"recordings={work / 'recordings'}"
    process = subprocess.Popen([sys.executable, str(server), str(port), str(work / "objects"), offered])
    try:
        wait_for_port(port, process)
        yield Places(f"s3://{BUCKET}/recordings", f"s3://{BUCKET}/out", endpoint)
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(work / "objects", ignore_errors=True)


def compare(deployments: list[str], work: Path, works: dict[str, int], places: Places) -> int:
    """Run the deployments and print their lines; 1 where they did not all write the same."""
    digests: dict[str, set[tuple[int, str]]] = {}
    print(HEAD, flush=True)
    for name in deployments:
        for what, recordings in works.items():
            shutil.rmtree(work / "out", ignore_errors=True)
            before = places.requests()
            line, usage = run(name, work, places, recordings)
            asked = {kind: count - before.get(kind, 0) for kind, count in places.requests().items()}
            job = ScaleJob("", places.source, places.out, recordings)
            line["digest"] = digest_of(f"{places.out}/{name}.rrd" for name in job.names())
            print(_told(name, what, line, usage), flush=True)
            if asked:
                print("    requests:", ", ".join(f"{kind} {count:,}" for kind, count in sorted(asked.items()) if count))
            digests.setdefault(what, set()).add((line["rows"], line["digest"]))
            shutil.rmtree(work / "out", ignore_errors=True)
    if any(len(found) > 1 for found in digests.values()):
        print("the deployments did not write the same", file=sys.stderr)
        return 1
    return 0


def run(name: str, work: Path, places: Places, recordings: int) -> tuple[dict[str, Any], Usage]:
    """One piece of work under one deployment: what its driver said of it, and what its processes took."""
    if places.server is None:
        (work / "out").mkdir()
    with deployed(name, work) as deployment:
        job = ScaleJob(deployment.master, places.source, places.out, recordings)
        script = Path(__file__).parent / "scale_work.py"
        process = subprocess.Popen(
            [sys.executable, str(script), as_json(job)],
            env={**os.environ, **deployment.environment},
            stdout=subprocess.PIPE,
        )
        with watching(process.pid, *deployment.processes) as watch:
            output, _ = process.communicate()
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, process.args)
    return json.loads(output.splitlines()[-1]), watch.usage


def _told(name: str, what: str, line: dict[str, Any], usage: Usage) -> str:
    peak, cpu = usage.peak, usage.cpu
    return (
        f"{name:14} {what:7} {line['start']:7.1f} {line['seconds']:7.1f} {peak.get('driver', 0):9.0f} "
        f"{line['driver_cpu']:6.1f} {peak.get('jvm', 0):7.0f} {cpu.get('jvm', 0):6.1f} {peak.get('worker', 0):9.0f} "
        f"{usage.total:7.0f} {line['splits']:6,} {line['plan']:6.2f} {line['commit']:8.2f} {line['rows']:10,}  "
        f"{line['digest']}"
    )


if __name__ == "__main__":
    sys.exit(main())
