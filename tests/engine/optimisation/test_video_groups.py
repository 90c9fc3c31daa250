"""Video streams laid out by groups of pictures."""

from __future__ import annotations

import warnings
from itertools import chain, pairwise

import pyarrow as pa
import pytest
from chunk_making import content, times_of
from chunkmill.engine.chunk import Chunk, ComponentDescriptor
from chunkmill.engine.errors import ReadError, ReadWarning
from chunkmill.engine.optimisation.passes import optimised
from chunkmill.engine.optimisation.profile import OptimizationProfile, Settings
from chunkmill.engine.optimisation.video import IS_KEYFRAME as MARK
from chunkmill.engine.optimisation.video import disagreement, rebatch_video, rebatch_videos, video_groups
from hypothesis import given, settings
from hypothesis import strategies as st
from video_making import (
    BLOBS,
    CODEC,
    DELTA,
    IDR_ALONE,
    KEY,
    SAMPLE,
    codec,
    flags,
    labels,
    samples,
)

STREAM = [KEY, DELTA, DELTA, KEY, DELTA, DELTA, DELTA, KEY, DELTA]
OTHER = ComponentDescriptor("other")
EACH = OptimizationProfile(max_bytes=0)


def _laid_out(*chunks, profile=EACH, **arguments):
    return rebatch_videos(chunks, Settings.of(profile), **arguments)


def _with(chunks, component):
    """The times of the chunks that have a component, in the order of time."""
    return sorted(times_of(c for c in chunks if any(x.descriptor.component == component for x in c.data.components)))


def _samples_in(chunks):
    return _with(chunks, SAMPLE.component)


def test_one_group_a_chunk():
    out = _laid_out(codec(), samples(range(9), STREAM))
    assert _samples_in(out) == [[0, 1, 2], [3, 4, 5, 6], [7, 8]]
    assert _with(out, MARK) == [[0, 3, 7]]


def test_the_marker():
    (marker,) = [
        c for c in _laid_out(codec(), samples(range(9), STREAM)) if c.data.components[0].descriptor.component == MARK
    ]
    (column,) = marker.data.components
    assert column.descriptor.archetype == "rerun.archetypes.VideoStream"
    assert column.descriptor.component_type == "rerun.components.IsKeyframe"
    assert column.values.equals(pa.array([[True]] * 3))


def test_small_groups_share_a_chunk():
    out = _laid_out(codec(), samples(range(9), STREAM), profile=OptimizationProfile(max_bytes=3600))
    assert _samples_in(out) == [[0, 1, 2, 3, 4, 5, 6], [7, 8]]
    whole = samples(range(9), STREAM)
    assert whole in _laid_out(codec(), whole, profile=OptimizationProfile.LIVE)


@pytest.mark.parametrize(
    "cuts", [[0, 9], [0, 2, 9], [0, 3, 9], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]], ids=["one", "amid", "between", "singly"]
)
def test_groups_over_several_chunks(cuts):
    parts = [samples(range(a, b), STREAM[a:b]) for a, b in pairwise(cuts)]
    out = _laid_out(codec(), *parts)
    assert _samples_in(out) == [[0, 1, 2], [3, 4, 5, 6], [7, 8]]


def test_interleaved_chunks():
    out = _laid_out(codec(), samples(range(0, 9, 2), STREAM[0::2]), samples(range(1, 9, 2), STREAM[1::2]))
    assert _samples_in(out) == [[0, 2, 1], [4, 6, 3, 5], [8, 7]]


def test_rows_without_a_sample_are_kept():
    given_samples = [None, KEY, DELTA, None, KEY, DELTA, None, b"", KEY]
    chunk = samples(range(9), given_samples, [(OTHER, pa.array([[i] for i in range(9)]))])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = _laid_out(codec(), chunk)
    assert _samples_in(out) == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
    assert _without_marker(out) == content([codec_of(out), chunk])


def _without_marker(chunks):
    return content([c for c in chunks if c.data.components[0].descriptor.component != MARK])


def codec_of(chunks):
    return next(c for c in chunks if c.data.components[0].descriptor.component == CODEC.component)


def test_a_late_start():
    with pytest.warns(ReadWarning, match="VideoStream '/v': the first sample is not a keyframe"):
        out = _laid_out(codec(), samples(range(9), [DELTA, DELTA, *STREAM[:7]]))
    assert _samples_in(out) == [[0, 1], [2, 3, 4], [5, 6, 7, 8]]


def test_without_a_key_frame_there_is_no_marker():
    with pytest.warns(ReadWarning, match="first sample"):
        out = _laid_out(codec(), samples([0, 1], [DELTA, IDR_ALONE]), samples([2], [DELTA]))
    assert _samples_in(out) == [[0, 1, 2]]
    assert _with(out, MARK) == []


def test_bytes_in_any_form():
    for datatype in (BLOBS, pa.list_(pa.binary())):
        assert len(_samples_in(_laid_out(codec(), samples(range(9), STREAM, datatype=datatype)))) == 3


def test_a_codec_logged_over_time():
    assert len(_samples_in(_laid_out(codec(times=[0]), samples(range(9), STREAM)))) == 3


# --- what leaves a stream alone


@pytest.mark.parametrize(
    "parts",
    [
        [samples([0, 2, 1], [KEY, DELTA, DELTA])],
        [samples([0], [KEY]), samples([1], [DELTA], datatype=pa.list_(pa.binary()))],
        [
            samples([0], [KEY]),
            Chunk.build("/v", {"t": pa.array([1]), "u": pa.array([1])}, [(SAMPLE, pa.array([[[1]]], BLOBS))]),
        ],
    ],
    ids=["unsorted", "datatypes", "timelines"],
)
def test_left_alone(parts):
    chunks = [codec(), *parts]
    with pytest.warns(ReadWarning, match="keeps its chunks"):
        assert _laid_out(*chunks) == sorted(chunks, key=lambda c: c.header.chunk_id)


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ([samples([0], [KEY])], "couldn't resolve video codec"),
        ([codec(7), samples([0], [KEY])], "couldn't resolve video codec: 7"),
        ([codec(), samples([0], [b"\x00\x00\x01\x67" + IDR_ALONE])], "Detected group of picture but failed"),
        ([codec(), samples([0], [KEY]), samples([0], [KEY], timeline="u")], "no timeline in common"),
        ([codec(), samples([0], [KEY], datatype=pa.list_(pa.string()))], "not as bytes"),
    ],
)
def test_errors(chunks, message):
    with pytest.raises(RuntimeError, match=f"Failed to add chunk to store: VideoStream '/v': .*{message}"):
        _laid_out(*chunks)
    with pytest.warns(ReadWarning, match=message):
        assert set(_laid_out(*chunks, strict=False)) == set(chunks)


def test_a_recording_without_video_is_itself():
    chunks = [codec(), labels([1], [True])]
    assert _laid_out(*chunks) == chunks


def test_static_samples_are_ignored():
    static = Chunk.build("/v", {}, [(SAMPLE, pa.array([[list(KEY)]], BLOBS))])
    assert static in _laid_out(codec(), static)


def test_which_chunks_a_stream_needs():
    chunks = [samples([0], [KEY]), codec(), labels([0], [True]), codec().with_entity_path("/w")]
    assert video_groups([c.header for c in chunks]) == [[0, 1, 2]]


# --- labels


def test_right_labels_are_kept_as_they_are():
    right = labels([0, 3, 7], [True] * 3)
    out = _laid_out(codec(), samples(range(9), STREAM), right)
    assert right in out
    assert _with(out, MARK) == [[0, 3, 7]]


def test_labels_beside_samples_get_a_chunk_of_their_own():
    chunk = samples(range(9), STREAM, [flags([s is KEY or None for s in STREAM])])
    out = _laid_out(codec(), chunk)
    assert _samples_in(out) == [[0, 1, 2], [3, 4, 5, 6], [7, 8]]
    assert _with(out, MARK) == [[0, 3, 7]]
    assert content(out) == content([codec_of(out), chunk])


def test_labels_beside_other_components():
    beside = labels([0, 3, 7], [True] * 3, [(OTHER, pa.array([[1], [2], None]))])
    out = _laid_out(codec(), samples(range(9), STREAM), beside)
    assert _with(out, MARK) == _with(out, "other") == [[0, 3, 7]]


SPARSE = "`is_keyframe` is a sparse marker, only `true` should be logged"
MISSING = "1 codec keyframe(s) missing an `is_keyframe=true` label (e.g. at times 7)"
EXTRA = "1 sample(s) labeled `is_keyframe=true` that are not codec keyframes (e.g. at times 8)"
WRONG = [
    ([0, 3], [True] * 2, MISSING),
    ([0, 3, 7, 8], [True] * 4, EXTRA),
    ([0, 1, 3, 7], [True, False, True, True], f"1 `is_keyframe=false` row(s) (e.g. at times 1); {SPARSE}"),
    ([0, 3, 8], [True] * 3, f"{MISSING}; {EXTRA}"),
]


@pytest.mark.parametrize(("times", "values", "message"), WRONG)
def test_wrong_labels(times, values, message):
    wrong = labels(times, values)
    with pytest.raises(ReadError) as caught:
        _laid_out(codec(), samples(range(9), STREAM), wrong)
    assert caught.value.message == (
        f"Failed to add chunk to store: VideoStream '/v': user-supplied `is_keyframe` data is incorrect: {message}; "
        "pass `--fix-keyframe` (Python: `fix_keyframe=True`) to drop the existing labels and re-derive them from the "
        "encoded samples"
    )
    fixed = _laid_out(codec(), samples(range(9), STREAM), wrong, profile=OptimizationProfile(fix_keyframe=True))
    assert _with(fixed, MARK) == [[0, 3, 7]]
    assert wrong not in fixed


def test_many_wrong_labels_are_counted():
    keyframes, none = pa.array(range(5)).to_numpy(), pa.array([], pa.int64()).to_numpy()
    assert disagreement(keyframes, none, none.astype(bool)) == (
        "5 codec keyframe(s) missing an `is_keyframe=true` label (e.g. at times 0, 1, 2 (+2 more))"
    )


def test_fixing_keeps_what_stands_beside_the_labels():
    beside = labels([0, 8], [True] * 2, [(OTHER, pa.array([[1], [2]]))])
    out = _laid_out(codec(), samples(range(9), STREAM), beside, profile=OptimizationProfile(fix_keyframe=True))
    assert _with(out, "other") == [[0, 8]]
    assert _with(out, MARK) == [[0, 3, 7]]


# --- all of it


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([KEY, DELTA, DELTA, None]), st.integers(0, 2)), min_size=1, max_size=25),
    st.sampled_from([0, 2500, 10_000, None]),
)
@pytest.mark.filterwarnings("ignore::chunkmill.engine.errors.ReadWarning")
def test_no_row_is_lost_and_no_group_is_split(rows, max_bytes):
    parts = []
    for part in range(3):
        mine = [(i, sample) for i, (sample, where) in enumerate(rows) if where == part]
        if mine:
            times = [i for i, _ in mine]
            parts.append(samples(times, [s for _, s in mine], [(OTHER, pa.array([[i] for i in times]))]))
    named = codec()
    out = _laid_out(named, *parts, profile=OptimizationProfile(max_bytes=max_bytes))
    assert _without_marker(out) == content([named, *parts])
    starts = [i for i, (sample, _) in enumerate(rows) if sample is KEY]
    home = {t: n for n, times in enumerate(_samples_in(out)) for t in times}
    for begin, end in pairwise([*starts, len(rows)]):
        assert len({home[t] for t in range(begin, end)}) == 1
    assert list(chain(*_with(out, MARK))) == starts


def test_a_profile_lays_video_out():
    chunks = [codec(), *(samples([i], [s]) for i, s in enumerate(STREAM))]
    out = optimised(chunks, OptimizationProfile(max_bytes=3600))
    assert _samples_in(out) == [[0, 1, 2, 3, 4, 5, 6], [7, 8]]
    left = optimised(chunks, OptimizationProfile(max_bytes=3600, gop_batching=False))
    assert _with(left, MARK) == []


def test_laying_out_again_changes_nothing():
    once = _laid_out(codec(), samples(range(9), STREAM))
    again = _laid_out(*once)
    assert [c.id for c in again] == [c.id for c in once]


def test_chunks_are_read_as_they_are_needed():
    chunks = [codec(), samples(range(9), STREAM)]
    stream = rebatch_video(chunks, Settings.of(EACH))
    assert next(stream) is chunks[0]
    assert times_of([next(stream)]) == [[0, 1, 2]]
