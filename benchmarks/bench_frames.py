"""One topic of a mixture as a pandas DataFrame, beside those who give one, or messages to make one of.

Every MCAP chunk of the mixture has messages of the topic, and is decompressed by all: that is most of what is left.
``rosbags-dataframe``, and ``mcap`` with ``mcap-ros2-support``, read the same MCAP, and of it the fields of the
acceleration; Rerun reads the same RRD, which its server has registered, and of it the column of scalars, or all.

60 MB, nearly all of it images (7,500 messages of the topic; 2 cores, busy). Each row has medians of 5, ours and theirs
in turns; rows are of different runs, on a machine that was not equally busy, so that only their ratios compare:

====================  =======  =======  =====  =====
beside                ours     theirs   ratio  reach
====================  =======  =======  =====  =====
mcap                  0.146 s  0.69 s   0.21   0.1
rosbags-dataframe     0.146 s  0.89 s   0.16   0.1
Rerun, one column     0.070 s  0.069 s  1.01   1.0
Rerun, all columns    0.066 s  0.29 s   0.23   1.0
====================  =======  =======  =====  =====

The first two were measured with one thread. Of the best of these runs, 0.095 s, decompression is 0.086 s as mcap does
it: that alone is 0.18 of mcap's best and 0.12 of rosbags', so that 0.1 takes several cores, on which chunks are
decompressed since. Of 480,000 messages in 300 MB the fields take 1.1 s of a core, 2.4 us a message, where those two
spend 50 and 80 us on each message of this file, beside decompression.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from chunkmill.readers import McapReader, RrdReader
from conftest import Duel

TOPIC = "/imu/data"
FIELDS = [f"linear_acceleration.{axis}" for axis in "xyz"]


def of_topic(mixture: Path) -> pd.DataFrame:
    """What every round of ours does."""
    return McapReader(mixture).frame(TOPIC, columns=FIELDS)


def test_frame_beside_mcap(benchmark: Any, duel: Duel, mixture: Path) -> None:
    """Guards: at most 0.1 x the time of a loop over mcap's own reader with its ROS 2 decoder."""
    from mcap.reader import make_reader
    from mcap_ros2.decoder import DecoderFactory

    def theirs() -> pd.DataFrame:
        rows = []
        with mixture.open("rb") as file:
            reader = make_reader(file, decoder_factories=[DecoderFactory()])
            for _, _, message, decoded in reader.iter_decoded_messages(topics=[TOPIC]):
                pull = decoded.linear_acceleration
                rows.append((message.log_time, pull.x, pull.y, pull.z))
        return pd.DataFrame(rows, columns=["log_time", *FIELDS]).set_index("log_time")

    assert len(theirs()) == len(of_topic(mixture))
    duel.run(benchmark, lambda: of_topic(mixture), theirs, bar=0.1)


def test_frame_beside_rosbags(benchmark: Any, duel: Duel, mixture: Path) -> None:
    """Guards: at most 0.1 x the time of rosbags-dataframe."""
    dataframe = pytest.importorskip("rosbags.dataframe")
    from rosbags.highlevel import AnyReader

    def theirs() -> pd.DataFrame:
        with AnyReader([mixture]) as reader:
            made: pd.DataFrame = dataframe.get_dataframe(reader, TOPIC, FIELDS)
            return made

    duel.run(benchmark, lambda: of_topic(mixture), theirs, bar=0.1)


@pytest.mark.parametrize("columns", ["scalars", "all"])
def test_frame_beside_rerun(benchmark: Any, duel: Duel, mixture: Path, tmp_path: Path, columns: str) -> None:
    """Guards: at most 1.0 x the time of Rerun's reader over a registered RRD of the same messages."""
    server = pytest.importorskip("rerun.server")
    path = tmp_path / "imu.rrd"
    stream = McapReader(mixture).stream().filter(content=TOPIC)
    stream.write_rrd(path, application_id="bench", recording_id="bench", executor="inline")
    wanted = ["scalars"] if columns == "scalars" else None

    def ours() -> pd.DataFrame:
        return RrdReader(path).frame(TOPIC, index="log_time", columns=wanted)

    with server.Server(datasets={"bench": [str(path)]}) as running:
        view = running.client().get_dataset("bench").filter_contents([TOPIC])

        def theirs() -> pd.DataFrame:
            frame = view.reader(index="message_log_time")
            if columns == "scalars":
                frame = frame.select('"message_log_time"', f'"{TOPIC}:Scalars:scalars"')
            made: pd.DataFrame = frame.to_pandas()
            return made

        assert len(theirs()) == len(ours())
        duel.run(benchmark, ours, theirs, bar=1.0)
