"""The arguments of an optimisation profile."""

from __future__ import annotations

import dataclasses

import pytest
from chunkmill.engine.optimisation.profile import OptimizationProfile, Settings


def test_presets():
    live, far = OptimizationProfile.LIVE, OptimizationProfile.OBJECT_STORE
    assert (live.max_bytes, live.max_rows, live.max_rows_if_unsorted) == (393_216, 4096, 1024)
    assert (far.max_bytes, far.max_rows, far.max_rows_if_unsorted) == (2_097_152, 65_536, 8192)
    for profile in (live, far):
        assert (profile.extra_passes, profile.gop_batching) == (50, True)
        assert (profile.split_size_ratio, profile.fix_keyframe) == (None, False)


def test_is_frozen_and_keyword_only():
    with pytest.raises(dataclasses.FrozenInstanceError):
        OptimizationProfile.LIVE.max_bytes = 1
    with pytest.raises(TypeError, match="positional"):
        OptimizationProfile(1)


def test_thresholds_fall_back_to_live():
    settings = Settings.of(OptimizationProfile(max_rows=7))
    assert (settings.max_bytes, settings.max_rows, settings.max_rows_if_unsorted) == (393_216, 7, 1024)
    assert settings.extra_passes == 50


def test_without_a_profile_there_is_one_pass():
    settings = Settings.of(None)
    assert (settings.max_bytes, settings.extra_passes, settings.gop_batching) == (393_216, 0, False)


@pytest.mark.parametrize(
    ("field", "value", "error", "message"),
    [
        ("max_bytes", -1, OverflowError, "can't convert negative int to unsigned"),
        ("max_rows", 1 << 64, OverflowError, "int too big to convert"),
        ("max_bytes", "x", TypeError, "argument 'max_bytes': 'str' object cannot be interpreted as an integer"),
        ("max_rows_if_unsorted", 1.5, TypeError, "argument 'max_rows_if_unsorted': 'float' object cannot be"),
        ("extra_passes", None, TypeError, "argument 'extra_passes': 'NoneType' object cannot be"),
        ("extra_passes", -1, OverflowError, "can't convert negative int to unsigned"),
        ("gop_batching", 1, TypeError, "argument 'gop_batching': 'int' object is not an instance of 'bool'"),
        ("split_size_ratio", "x", TypeError, "argument 'split_size_ratio': must be real number, not str"),
    ],
)
def test_errors(field, value, error, message):
    profile = OptimizationProfile(**{field: value})
    with pytest.raises(error, match=message):
        Settings.of(profile)


def test_something_else_than_a_profile():
    with pytest.raises(AttributeError, match="'str' object has no attribute 'max_bytes'"):
        Settings.of("x")
