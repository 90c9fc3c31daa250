"""A slice of the random pipelines (see ``random_pipelines.py``): inline and on Spark, and inline once more."""

from __future__ import annotations

import json
import random
from functools import cache

import pytest
from places import DATA
from random_pipelines import Facts, made_pipeline, outcome, readable, recordings

SEED = 20
ON_SPARK = 12


@cache
def facts() -> list[Facts]:
    return readable(random.Random(SEED).sample(recordings(DATA, 100_000), 40))


@pytest.mark.parametrize("number", range(100))
def test_a_random_pipeline_gives_the_same_in_every_run(number: int, request: pytest.FixtureRequest) -> None:
    spec = made_pipeline(random.Random(SEED * 1000 + number), facts())
    first = outcome(spec, "inline")
    other = "inline"
    if number < ON_SPARK:
        request.getfixturevalue("spark")
        other = "spark"
    assert outcome(spec, other) == first, json.dumps(spec)
