"""A slice of ``replay_schedules.py``."""

from __future__ import annotations

from collections import Counter

from replay_schedules import run

SEED = 20_261_121


def test_commits_of_unknown_outcome_and_batches_that_come_again_change_nothing() -> None:
    outcomes: Counter[str] = Counter()
    for number in range(8):
        wrong, told = run(SEED, number)
        assert not wrong, f"python tests/faults/replay_schedules.py --seed {SEED} --only {number}\n" + "\n".join(wrong)
        outcomes.update(told)
    assert min(outcomes["done"], outcomes["unknown"], outcomes["failed"]) > 0
