"""One pipeline under every deployment of Spark: the same recordings, and what each costs the driver.

    python benchmarks/scale.py [--recordings 1000] [--size-mb 4000] [--work FOLDER] [DEPLOYMENT ...]

Deployments: ``inline``, ``local[1]``, ``local[2]``, ``local-cluster`` (two executors of one core), ``standalone``
(a master and two workers, started from pip's pyspark), ``connect`` (a Spark Connect server, and a client without a
JVM). Each converts a folder of small recordings and one large recording, in a process of its own, and prints a line:
seconds, the driver's peak memory and processor time, rows, and a digest of what was written, which must be the same
for all. Ends with 1 where it is not.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

DEPLOYMENTS: Final = ("inline", "local[1]", "local[2]", "local-cluster", "standalone", "connect")
SMALL: Final = Path(__file__).resolve().parent.parent / "tests" / "data" / "mcap" / "rosbag2__talker.mcap"
_PATIENCE: Final = 120.0


def main() -> int:
    """Run every deployment that was asked for, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("deployments", nargs="*", metavar="DEPLOYMENT", help=f"of {', '.join(DEPLOYMENTS)}; all")
    parser.add_argument("--recordings", type=int, default=1000)
    parser.add_argument("--size-mb", type=int, default=4000, help="of the large recording; 0 leaves it out")
    parser.add_argument("--work", type=Path, help="a folder with room for the recordings; default: a temporary one")
    parser.add_argument("--run", metavar="MASTER", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if unknown := set(given.deployments) - set(DEPLOYMENTS):
        parser.error(f"no deployment: {', '.join(sorted(unknown))}")
    if given.run is not None:
        print(json.dumps(run(given.run, given.work, given.recordings, given.size_mb)))
        return 0
    with tempfile.TemporaryDirectory() as made:
        work = given.work or Path(made)
        prepare(work, given.recordings, given.size_mb)
        return compare(given.deployments or list(DEPLOYMENTS), work, given.recordings, given.size_mb)


def prepare(work: Path, recordings: int, size_mb: int) -> None:
    """Make the recordings: links to a small one, and a large one."""
    folder = work / "recordings"
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(recordings):
        target = folder / f"drive-{i:05d}.mcap"
        if not target.exists():
            target.symlink_to(SMALL)
    large = work / f"large-{size_mb}.mcap"
    if size_mb and not large.exists():
        from made_recordings import write_mixture

        write_mixture(large, size_mb)


def compare(deployments: list[str], work: Path, recordings: int, size_mb: int) -> int:
    """Run the deployments and print their lines; 1 where they did not all write the same."""
    digests = set()
    print(f"{'deployment':14} {'work':12} {'seconds':>8} {'driver MB':>10} {'driver cpu s':>12} {'rows':>12}  digest")
    for name in deployments:
        with deployed(name, work) as (master, environment):
            command = [sys.executable, __file__, "--run", master, "--work", str(work)]
            command += ["--recordings", str(recordings), "--size-mb", str(size_mb)]
            done = subprocess.run(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, check=True)
        for line in json.loads(done.stdout):
            print(
                f"{name:14} {line['work']:12} {line['seconds']:8.1f} {line['driver_mb']:10.0f} "
                f"{line['driver_cpu']:12.1f} {line['rows']:12,}  {line['digest']}",
                flush=True,
            )
            digests.add((line["work"], line["rows"], line["digest"]))
    works = {work for work, _, _ in digests}
    if len(digests) != len(works):
        print("the deployments did not write the same", file=sys.stderr)
        return 1
    return 0


@contextmanager
def deployed(name: str, work: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Start what a deployment needs; gives its master URL and the environment for its driver."""
    if name == "standalone":
        with standalone(work) as url:
            yield url, {"PYSPARK_PYTHON": sys.executable}
    elif name == "connect":
        with connect(work) as url:
            yield url, {}
    else:
        yield ("local-cluster[2,1,1024]" if name == "local-cluster" else name), {}


@contextmanager
def standalone(work: Path) -> Iterator[str]:
    """A standalone master with two workers of one core on loopback."""
    port = _free_port()
    url = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    master = ["spark-class", f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    worker = ["spark-class", f"{deploy}.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g"]
    with _running(master, work / "master.log") as process:
        _wait_for(port, process)
        first = [*worker, "--work-dir", str(work / "worker-1"), "--webui-port", "0", url]
        second = [*worker, "--work-dir", str(work / "worker-2"), "--webui-port", "0", url]
        with _running(first, work / "worker-1.log"), _running(second, work / "worker-2.log"):
            _wait_for_text(work / "worker-1.log", "Successfully registered")
            _wait_for_text(work / "worker-2.log", "Successfully registered")
            yield url


@contextmanager
def connect(work: Path) -> Iterator[str]:
    """A Spark Connect server with two cores on loopback."""
    port = _free_port()
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    conf = {"spark.connect.grpc.binding.port": port, "spark.connect.grpc.binding.address": "127.0.0.1"}
    settings = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    command = ["spark-submit", "--class", server, "--master", "local[2]", "--conf", "spark.ui.enabled=false", *settings]
    with _running(command, work / "connect.log") as process:
        _wait_for(port, process)
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def _running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program of pip's pyspark, on the Java that chunkmill finds, for as long as the block runs."""
    import pyspark
    from chunkmill.engine.execution.java import find_java
    from chunkmill.engine.execution.scripted_session import launchable

    home = Path(pyspark.__file__).parent
    java = log.with_suffix(".java")
    shutil.rmtree(java, ignore_errors=True)
    environment = {
        **os.environ,
        "JAVA_HOME": str(launchable(find_java(), java)),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "PYSPARK_PYTHON": sys.executable,
    }
    with log.open("wb") as out:
        words = [str(home / "bin" / command[0]), *command[1:]]
        process = subprocess.Popen(words, env=environment, stdout=out, stderr=out, cwd=log.parent)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError(f"nothing listens on port {port}")


def _wait_for_text(log: Path, text: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        if text in log.read_text(errors="replace"):
            return
        time.sleep(0.2)
    raise TimeoutError(f"{log} does not say {text!r}")


def run(master: str, work: Path, recordings: int, size_mb: int) -> list[dict[str, Any]]:
    """The work of one deployment, in this process: what each part took."""
    options: dict[str, Any] = {"executor": "inline"} if master == "inline" else {"executor": "spark", "master": master}
    lines = [_measured("folder", work, _convert_folder, options, recordings)]
    if size_mb:
        lines.append(_measured("large", work, _convert_large, options, size_mb))
    return lines


def _measured(name: str, work: Path, convert: Any, options: dict[str, Any], size: int) -> dict[str, Any]:
    out = work / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    started, cpu = time.perf_counter(), time.process_time()
    rows = convert(work, out, options, size)
    line = {
        "work": name,
        "seconds": time.perf_counter() - started,
        "driver_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "driver_cpu": time.process_time() - cpu,
        "rows": rows,
    }
    line["digest"] = _digest(out)
    shutil.rmtree(out)
    return line


def _convert_folder(work: Path, out: Path, options: dict[str, Any], recordings: int) -> int:
    from chunkmill.engine import StoreEntry
    from chunkmill.engine.execution.many import write_recordings
    from chunkmill.engine.execution.runner import RunOptions
    from chunkmill.engine.stream.lazy_stream import plan_recording
    from chunkmill.readers import McapReader

    sources = sorted((work / "recordings").iterdir())[:recordings]
    planned = (
        plan_recording(
            out / f"{source.stem}.rrd",
            [(StoreEntry("recording", "scale", source.stem), McapReader(source).stream())],
            executor=options["executor"],
        )
        for source in sources
    )
    rows = 0
    for outcome in write_recordings(planned, out, RunOptions(options["executor"], options.get("master"))):
        if outcome.report is None:
            assert outcome.error is not None
            raise outcome.error
        rows += outcome.report.rows
    return rows


def _convert_large(work: Path, out: Path, options: dict[str, Any], size_mb: int) -> int:
    from chunkmill.readers import McapReader

    stream = McapReader(work / f"large-{size_mb}.mcap").stream()
    return stream.write_rrd(out / "large.rrd", application_id="scale", recording_id="large", **options).rows


def _digest(out: Path) -> str:
    """What lies in the RRDs: entity, rows and timelines of each chunk in its order, without the ids of the run."""
    from chunkmill.readers import RrdReader

    found = hashlib.blake2b(digest_size=8)
    for path in sorted(out.rglob("*.rrd")):
        for chunk in RrdReader(path).store().stream().to_chunks(executor="inline"):
            header = chunk.header
            lines = [(t.name, t.start, t.end) for t in header.timelines]
            columns = [(c.descriptor.component, str(c.datatype)) for c in header.components]
            found.update(repr((path.name, header.entity_path, header.num_rows, lines, columns)).encode())
    return found.hexdigest()


if __name__ == "__main__":
    sys.exit(main())
