"""Key frames told by the bytes of a sample."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from chunkmill.engine.video.bitstream import DETECTORS, BitReader, nal_units, picture_size, raw_payload
from hypothesis import given, settings
from hypothesis import strategies as st
from video_making import AV1, DELTA, H264, H265, IDR_ALONE, KEY, START, VP8, VP9, BitWriter, h264_parameters

H265_PARAMETERS = START + b"\x42\x01" + b"p" * 20
AV1_SEQUENCE, AV1_KEY = b"\x0a\x01\x00", b"\x32\x02\x10\x00"
VP8_KEY = b"\x10\x00\x00\x9d\x01\x2a\x40\x00\x40\x00xx"


@pytest.mark.parametrize(
    ("codec", "sample", "is_keyframe"),
    [
        (H264, KEY, True),
        (H264, DELTA, False),
        (H264, IDR_ALONE, False),
        (H264, START + h264_parameters() + DELTA, False),
        (H264, DELTA + KEY, True),
        (H264, b"", False),
        (H264, b"\x00\x00\x00\x20" + b"\x65" * 32, False),
        (H265, H265_PARAMETERS + START + b"\x26\x01abc", True),
        (H265, H265_PARAMETERS + START + b"\x28\x01abc", True),
        (H265, START + b"\x26\x01abc", False),
        *[(H265, H265_PARAMETERS + START + bytes((t << 1, 1)) + b"abc", t in range(16, 22)) for t in range(32)],
        (H265, START + b"\x2a\x01cra", False),
        (AV1, AV1_SEQUENCE + AV1_KEY, True),
        (AV1, b"\x12\x00" + AV1_SEQUENCE + b"\x1a\x01\x10", True),
        (AV1, AV1_KEY, False),
        (AV1, AV1_SEQUENCE + b"\x32\x02\x30\x00", False),
        (AV1, AV1_SEQUENCE + b"\x32\x02\x90\x00", False),
        (AV1, AV1_SEQUENCE + b"\x30\x10\x00", False),
        (AV1, AV1_SEQUENCE + b"\x32\x7f\x10", False),
        (AV1, b"\x0e\x00\x01\x00" + b"\x36\x00\x02\x10\x00", True),
        (VP8, VP8_KEY, True),
        (VP8, b"\x11" + VP8_KEY[1:], False),
        (VP8, VP8_KEY[:6] + b"\x00\xc0\x40\x00", False),
        (VP8, VP8_KEY[:9], False),
        (VP9, b"\x82\x49\x83\x42\x00", True),
        (VP9, b"\x86\x00\x00\x00\x00", False),
        (VP9, b"\x8a\x49\x83\x42\x00", False),
        (VP9, b"\x42\x49\x83\x42\x00", False),
        (VP9, b"\xb0\xa4\xc1\xa1\x00", True),
        (VP9, b"\x82\x49", False),
    ],
)
def test_key_frames(codec, sample, is_keyframe):
    assert DETECTORS[codec](sample) is is_keyframe


@pytest.mark.parametrize(
    "parameters",
    [h264_parameters(), h264_parameters(100), h264_parameters(66, (0,)), h264_parameters(66, (1,))],
)
def test_the_size_of_a_picture(parameters):
    assert picture_size(parameters) == (4, 4)


@pytest.mark.parametrize("length", range(1, len(h264_parameters()) - 1))
def test_parameters_that_end_early(length):
    broken = START + h264_parameters()[:length] + IDR_ALONE
    with pytest.raises(ValueError, match="Detected group of picture but failed to extract encoding details"):
        DETECTORS[H264](broken)


def test_parameters_out_of_range():
    wild = BitWriter().bits(8, 0x67).bits(24, 66 << 16).unsigned(32).done()
    with pytest.raises(ValueError, match="at most 31 is allowed"):
        picture_size(wild)


def test_nal_units():
    assert list(nal_units(b"")) == []
    assert list(nal_units(START)) == []
    sample = b"junk" + START + b"ab" + b"\x00" + START + b"c"
    assert [sample[a:b] for a, b in nal_units(sample)] == [b"ab\x00", b"c"]
    assert raw_payload(b"a\x00\x00\x03\x01b\x00\x00\x03\x00\x00\x03\x00\x00") == b"a\x00\x00\x01b\x00\x00\x00\x00"


def test_bits():
    reader = BitReader(BitWriter().bits(3, 5).unsigned(0, 7, 300).signed(-4).signed(4).done())
    assert [reader.bits(3), reader.unsigned(), reader.unsigned(), reader.unsigned()] == [5, 0, 7, 300]
    assert [reader.signed(), reader.signed(), reader.bits(0)] == [-4, 4, 0]
    with pytest.raises(ValueError, match="more than 32 leading zeros"):
        BitReader(bytes(8)).unsigned()
    with pytest.raises(ValueError, match="the header ends"):
        BitReader(b"\x01").bits(9)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(sorted(DETECTORS)),
    st.binary(max_size=80) | st.binary(max_size=20).map(lambda b: START + b"\x67" + b + IDR_ALONE),
)
def test_any_bytes_are_told_or_refused(codec, sample):
    refusal = pytest.raises(ValueError, match="encoding details") if _is_refused(codec, sample) else nullcontext()
    with refusal:
        assert DETECTORS[codec](sample) in (True, False)


def _is_refused(codec, sample):
    """Only H.264 looks into a header that it needs; there it says what is wrong."""
    if codec != H264:
        return False
    kinds = [sample[begin] & 0x1F for begin, _ in nal_units(sample)]
    if not {5, 7} <= set(kinds):
        return False
    begin, end = list(nal_units(sample))[kinds.index(7)]
    try:
        picture_size(sample[begin:end])
    except ValueError:
        return True
    return False
