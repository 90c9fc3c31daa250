"""Encoded video samples, just real enough to be told apart, and chunks of them."""

from __future__ import annotations

import pyarrow as pa
from chunkmill.engine.chunk import Chunk, ComponentDescriptor

H264, H265, AV1, VP8, VP9 = 0x61766331, 0x68657631, 0x61763031, 0x76703038, 0x76703039
BLOBS = pa.list_(pa.list_(pa.uint8()))
FLAGS = pa.list_(pa.bool_())


class BitWriter:
    """Bits into bytes, most significant first."""

    def __init__(self):
        self.digits = ""

    def bits(self, count, value):
        self.digits += format(value, f"0{count}b")
        return self

    def unsigned(self, *values):
        for value in values:
            code = format(value + 1, "b")
            self.digits += "0" * (len(code) - 1) + code
        return self

    def signed(self, value):
        return self.unsigned(2 * value - 1 if value > 0 else -2 * value)

    def done(self):
        padded = self.digits + "1"
        padded += "0" * (-len(padded) % 8)
        return int(padded, 2).to_bytes(len(padded) // 8, "big")


def h264_parameters(profile=66, order=(2,)):
    """A sequence parameter set of 64 x 64 pixels, with its header byte."""
    writer = BitWriter().bits(8, 0x67).bits(8, profile).bits(16, 10).unsigned(0)
    if profile == 100:
        writer.unsigned(1, 0, 0).bits(1, 0).bits(1, 1)
        for index in range(8):
            writer.bits(1, index in (0, 6))
            if index in (0, 6):
                writer.signed(-8)
    writer.unsigned(0)
    writer.unsigned(order[0])
    if order[0] == 0:
        writer.unsigned(4)
    elif order[0] == 1:
        writer.bits(1, 0).signed(-1).signed(2).unsigned(1).signed(3)
    return writer.unsigned(1).bits(1, 0).unsigned(3, 3).bits(1, 1).bits(1, 0).bits(1, 0).bits(1, 0).done()


START = b"\x00\x00\x01"
KEY = b"\x00" + START + h264_parameters() + START + b"\x68\xce" + START + b"\x65" + b"k" * 50
DELTA = b"\x00" + START + b"\x41" + b"d" * 20
IDR_ALONE = START + b"\x65" + b"k" * 50


def descriptor(field, kind):
    return ComponentDescriptor(f"VideoStream:{field}", "rerun.archetypes.VideoStream", f"rerun.components.{kind}")


SAMPLE, CODEC, IS_KEYFRAME = (
    descriptor("sample", "VideoSample"),
    descriptor("codec", "VideoCodec"),
    descriptor("is_keyframe", "IsKeyframe"),
)


def samples(times, given, extra=(), timeline="t", datatype=BLOBS):
    """A chunk of samples; None is a row without one."""
    form = list if datatype is BLOBS else str if pa.types.is_string(datatype.value_type) else bytes
    column = pa.array([None if s is None else [form(s)] for s in given], datatype)
    return Chunk.build("/v", {timeline: pa.array(times, pa.int64())}, [(SAMPLE, column), *extra])


def codec(number=H264, times=None):
    """The chunk that names the codec."""
    lines = {} if times is None else {"t": pa.array(times, pa.int64())}
    return Chunk.build("/v", lines, [(CODEC, pa.array([[number]], pa.list_(pa.uint32())))])


def flags(values):
    """An ``is_keyframe`` column."""
    return IS_KEYFRAME, pa.array([None if v is None else [v] for v in values], FLAGS)


def labels(times, values, extra=()):
    """A chunk of ``is_keyframe`` rows."""
    return Chunk.build("/v", {"t": pa.array(times, pa.int64())}, [flags(values), *extra])
