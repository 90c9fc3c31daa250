"""A slice of 360 mutants of ``fuzz_recordings.py``, and that the script would notice what it looks for."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fuzz_bags import bag_sources
from fuzz_parquet import parquet_sources
from fuzz_recordings import Case, Worker, fuzz, judge, replay
from fuzz_rosbag2 import rosbag2_sources
from fuzz_sources import make_store, mcap_sources, rrd_sources, store_files
from mutation import Mutant, mutate

SEED = 20_261_121


@pytest.mark.parametrize(
    ("kind", "mutants"),
    [("rrd", 80), ("mcap", 80), ("bag", 80), ("parquet", 80), ("rosbag2", 80), ("hdf5", 80), ("store", 40)],
)
def test_damaged_files_are_refused_or_right(kind: str, mutants: int) -> None:
    tally = fuzz(kind, range(mutants), SEED)
    assert not tally.failures, "\n".join(f"{why}\n{replay(kind, SEED, number)}" for number, _, why in tally.failures)
    assert tally.passed == mutants
    assert tally.seen["refused"] > mutants // 8
    assert tally.seen["right"]


# Statistics of a column that do not fit its schema, at which Arrow's Python binding ends the process.
# Names of tables in SQLite's list that are no UTF-8.
FINDS = [("parquet", 1, (97, 829, 938, 1378, 1724, 1883)), ("rosbag2", 1, (1243, 1498))]


@pytest.mark.parametrize(("kind", "seed", "numbers"), FINDS)
def test_what_was_found_stays_found(kind: str, seed: int, numbers: tuple[int, ...]) -> None:
    tally = fuzz(kind, numbers, seed)
    assert not tally.failures, "\n".join(f"{why}\n{replay(kind, seed, number)}" for number, _, why in tally.failures)
    assert tally.passed == len(numbers)


def test_sources_are_the_same_each_time(tmp_path: Path) -> None:
    assert rrd_sources() == rrd_sources()
    assert mcap_sources() == mcap_sources()
    assert bag_sources() == bag_sources()
    assert parquet_sources() == parquet_sources()
    assert rosbag2_sources() == rosbag2_sources()
    stores = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        make_store(folder)
        stores.append([(p.relative_to(folder), p.read_bytes()) for p in store_files(folder)])
    assert stores[0] == stores[1]


def test_a_seed_gives_the_same_damage() -> None:
    for source in rrd_sources():
        one, two = (mutate(random.Random(SEED), source.data, source.lengths) for _ in range(2))
        assert one == two and one.data != source.data


CASE = Case(0, "x", Mutant(b"", "nothing", None, "flips"), False, False, Path("/f"), Path("/f"), b"")
READ: dict[str, Any] = {"outcome": "read", "digest": "right", "warned": [], "seconds": 0.1, "mib": 1.0}
REFUSED: dict[str, Any] = {**READ, "outcome": "refused", "path": "/f", "hint": "Do.", "text": ""}


class TestJudgement:
    """What the script says of an answer."""

    def judged(self, answer: dict[str, Any], case: Case = CASE) -> str | None:
        return judge(answer, "right", case)[1]

    def test_what_may_be(self) -> None:
        assert self.judged(READ) is None
        assert self.judged(REFUSED) is None
        assert self.judged({**READ, "digest": "wrong"}, replace(CASE, unguarded=True)) is None
        warned = {**READ, "digest": "wrong", "warned": ["passed over"]}
        assert self.judged(warned, replace(CASE, forgiving=True)) is None

    @pytest.mark.parametrize(
        "change", [{"digest": "wrong"}, {"digest": "wrong", "warned": ["w"]}, {"seconds": 11.0}, {"mib": 513.0}]
    )
    def test_what_may_not_be_read(self, change: dict[str, Any]) -> None:
        assert self.judged({**READ, **change})

    @pytest.mark.parametrize("change", [{"path": None}, {"path": "/other"}, {"hint": None}, {"seconds": 11.0}])
    def test_refusals_without_shape(self, change: dict[str, Any]) -> None:
        assert self.judged({**REFUSED, **change})

    def test_a_foreign_exception_and_a_death(self, tmp_path: Path) -> None:
        with Worker() as worker:
            assert worker.read("none", tmp_path)["outcome"] == "foreign"
            process = worker._start()
            process.kill()
            process.wait()
            assert self.judged(worker.read("rrd", tmp_path / "x"))
            assert worker.read("none", tmp_path)["outcome"] == "foreign"
