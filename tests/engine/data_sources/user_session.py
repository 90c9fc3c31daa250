"""What a user does in a session of their own, without a call: ``python user_session.py MASTER RECORDING FOLDER``.

The session is made by pyspark alone. Prints what was found as JSON.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main(master: str, recording: Path, folder: Path) -> None:
    """Read, query, write and stream a recording that has a topic ``/imu``."""
    builder = SparkSession.builder.remote(master) if master.startswith("sc://") else SparkSession.builder.master(master)
    if not master.startswith("sc://"):
        builder = builder.config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    found: dict[str, object] = {}
    chunks = spark.read.format("chunkmill.mcap").option("payload", "true").load(str(recording))
    found["rows"] = chunks.selectExpr("sum(num_rows)").collect()[0][0]
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW imu USING chunkmill OPTIONS (path '{recording}', topic '/imu')")
    found["values"] = spark.sql("SELECT count(linear_acceleration.x) FROM imu").collect()[0][0]
    chunks.write.format("chunkmill.rrd").mode("append").save(str(folder / "drive.rrd"))
    found["written"] = spark.read.format("chunkmill.rrd").load(str(folder / "drive.rrd")).count() == chunks.count()
    (folder / "landing").mkdir()
    shutil.copy(recording, folder / "landing" / "a.mcap")
    landing = spark.readStream.format("chunkmill").option("settle", "0s").option("payload", "true")
    writer = landing.load(str(folder / "landing")).writeStream.format("chunkmill.store")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).option("path", str(folder / "lake"))
    writer.trigger(availableNow=True).start().awaitTermination()
    stored = spark.read.format("chunkmill.store").load(str(folder / "lake"))
    found["stored"] = [tuple(row) for row in stored.groupBy("recording_id").sum("num_rows").collect()]
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
