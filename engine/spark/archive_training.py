"""The process that makes the class archive: ``python -m chunkmill.engine.spark.archive_training JAVA_HOME``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from .class_archive import ClassArchive
from .gateway import environment
from .java import find_java
from .jvm import class_path
from .session import session_for_user, stop_session
from .session_conf import spark_home


def make_archive() -> bool:
    """Make the archive for the Java that sessions use here; whether it is there now."""
    archive = ClassArchive.of(find_java(), class_path(spark_home()))
    return archive.exists or archive.build(_train)


def _train(names: Path) -> None:
    """Run a small job of the kind that chunkmill runs, in a JVM that writes down the classes it loads."""
    options = f"-Xshare:off -XX:DumpLoadedClassList={names}"
    try:
        with environment({"CHUNKMILL_SCRATCH": str(names.parent)}):
            spark, _ = session_for_user("local[2]", {"spark.driver.extraJavaOptions": options})
        for _ in range(2):
            spark.range(0, 4, 1, 2).mapInArrow(_same, "id long").toArrow()
    finally:
        stop_session()


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _main(home: str) -> int:
    os.nice(19)
    if sys.platform == "linux":
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    os.environ["JAVA_HOME"] = home
    os.environ.pop("PYSPARK_SUBMIT_ARGS", None)
    return 0 if make_archive() else 1


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1]))
