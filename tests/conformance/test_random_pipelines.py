"""A slice of the random pipelines (see ``random_pipelines.py``): inline and on Spark, and inline once more."""

from __future__ import annotations

import json
import random
from functools import cache

import pytest
from places import DATA
from random_pipelines import Facts, Spec, made_pipeline, outcome, readable, recordings

SEED = 20


@cache
def facts() -> list[Facts]:
    return readable(random.Random(SEED).sample(recordings(DATA, 100_000), 40))


def pipelines(count: int) -> list[Spec]:
    return [made_pipeline(random.Random(SEED * 1000 + number), facts()) for number in range(count)]


@pytest.mark.heavy
@pytest.mark.heavy
def test_a_random_pipeline_gives_the_same_in_every_run() -> None:
    assert [json.dumps(s) for s in pipelines(100) if outcome(s, "inline") != outcome(s, "inline")] == []


@pytest.mark.usefixtures("spark")
def test_a_random_pipeline_gives_the_same_on_spark() -> None:
    assert [json.dumps(s) for s in pipelines(12) if outcome(s, "spark") != outcome(s, "inline")] == []
