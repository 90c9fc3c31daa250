"""Statistics beside numpy over all values at once."""

from __future__ import annotations

import numpy as np
import pytest
from chunkmill.engine.errors import UsageError
from chunkmill.engine.statistics import (
    POINTS,
    QUANTILES,
    PixelCounts,
    Statistics,
    pixel_step,
    sampled_frames,
)
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=8), st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_figures_of_all_are_those_of_the_values(lengths: list[int], seed: int, width: int) -> None:
    random = np.random.default_rng(seed)
    parts = [random.normal(random.uniform(-1e3, 1e3), 10 ** random.uniform(-3, 3), (n, width)) for n in lengths]
    whole, joined = np.concatenate(parts), Statistics.joined([Statistics.of(part) for part in parts])
    assert joined.samples == joined.values == len(whole)
    for mine, numpys in ((joined.minimum, whole.min(0)), (joined.maximum, whole.max(0)), (joined.mean, whole.mean(0))):
        assert np.allclose(mine, numpys, rtol=1e-12, atol=1e-9)
    assert np.allclose(joined.deviation, whole.std(0), rtol=1e-9, atol=1e-9)
    slack = 2 / (min(POINTS, len(whole)) - 1 or 1) + 1 / len(whole)
    for q in QUANTILES:
        for value, column in zip(joined.quantile(q), whole.T, strict=True):
            low, high = np.mean(column < value), np.mean(column <= value)
            assert low - slack <= q <= high + slack


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300))
def test_quantiles_of_a_short_episode_are_exact(values: list[float]) -> None:
    statistics = Statistics.of(np.array(values))
    assert [statistics.quantile(q)[0] for q in QUANTILES] == pytest.approx(np.quantile(values, QUANTILES))


def test_json_has_the_shape_of_the_feature() -> None:
    pixels = np.array([[0, 51, 255], [0, 51, 255]], np.uint8)
    shown = Statistics.of(pixels, samples=1).to_json((3, 1, 1), 255.0)
    assert shown["mean"] == [[[0.0]], [[0.2]], [[1.0]]]
    assert shown["count"] == [1]
    assert list(shown) == ["min", "max", "mean", "std", "q01", "q10", "q50", "q90", "q99", "count"]


def test_values_that_are_no_numbers_are_told_by_their_row() -> None:
    with pytest.raises(UsageError, match="row 1 has a value that is not finite"):
        Statistics.of(np.array([[0.0], [np.nan]]))
    with pytest.raises(UsageError, match="without frames"):
        Statistics.of(np.zeros((0, 2)))


def test_images_are_sampled_as_lerobot_does() -> None:
    assert [len(sampled_frames(n)) for n in (1, 99, 100, 1000, 10**6)] == [1, 99, 100, 177, 10_000]
    assert [pixel_step(*size) for size in ((480, 640), (200, 299), (640, 480), (300, 300))] == [4, 1, 4, 2]


@pytest.mark.parametrize("shape", [(2, 3), (20, 30), (120, 160)])
def test_counts_of_pixels_say_what_the_pixels_say(shape: tuple[int, int]) -> None:
    random, counts, rows = np.random.default_rng(1), PixelCounts(), []
    for high, times in ((1, 1), (90, 3), (190, 2)):
        image = random.integers(60, 60 + high, (*shape, 3), np.uint8)
        counts.add(image, times)
        rows += [image.reshape(-1, 3)] * times
    made, wanted = counts.statistics(), Statistics.of(np.concatenate(rows), 6)
    assert (made.samples, made.values) == (wanted.samples, wanted.values)
    for name in ("minimum", "maximum", "mean", "deviation", "points"):
        np.testing.assert_allclose(getattr(made, name), getattr(wanted, name), rtol=1e-12, err_msg=name)
