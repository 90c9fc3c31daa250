"""Ways to damage the bytes of a file, each from a seeded generator: the same seed gives the same damage."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple


class LengthField(NamedTuple):
    """Where a file says how long something is: ``size`` bytes little-endian, or a varint of ``size`` bytes."""

    at: int
    size: int
    varint: bool = False


class Mutant(NamedTuple):
    """Damaged bytes, what was done, and the range of the original that was touched (None where bytes moved)."""

    data: bytes
    what: str
    touched: tuple[int, int] | None
    way: str


def mutate(chance: random.Random, data: bytes, lengths: tuple[LengthField, ...]) -> Mutant:
    """``data`` damaged in one of the ways below."""
    ways: list[tuple[int, Callable[[], Mutant]]] = [
        (30, lambda: flip(chance, data, 1)),
        (10, lambda: flip(chance, data, 4)),
        (10, lambda: truncate(chance, data)),
        (15, lambda: splice(chance, data)),
        (15, lambda: byte_run(chance, data)),
        (20 if lengths else 0, lambda: edit_length(chance, data, lengths)),
    ]
    (way,) = chance.choices([w for _, w in ways], [weight for weight, _ in ways])
    return way()


def flip(chance: random.Random, data: bytes, bits: int) -> Mutant:
    """Turn ``bits`` bits over: all within eight bytes, or anywhere."""
    out = bytearray(data)
    near = chance.random() < 0.5
    start = chance.randrange(len(data))
    places = [
        min(start + chance.randrange(8), len(data) - 1) if near else chance.randrange(len(data)) for _ in range(bits)
    ]
    for place in places:
        out[place] ^= 1 << chance.randrange(8)
    return Mutant(bytes(out), f"{bits} bits flipped at {sorted(places)}", (min(places), max(places) + 1), "flips")


def truncate(chance: random.Random, data: bytes) -> Mutant:
    """Leave out the end; half of the cuts are within the last 64 bytes."""
    last = chance.random() < 0.5
    end = chance.randrange(max(0, len(data) - 64), len(data)) if last else chance.randrange(len(data))
    return Mutant(data[:end], f"cut to {end} bytes", None, "cuts")


def splice(chance: random.Random, data: bytes) -> Mutant:
    """Take a piece out, put it in a second time, or lay it over another place."""
    size = min(1 << chance.randrange(11), len(data))
    start, to = chance.randrange(len(data)), chance.randrange(len(data))
    piece = data[start : start + size]
    how = chance.choice(("removed", "inserted", "laid over"))
    if how == "removed":
        out = data[:start] + data[start + size :]
    elif how == "inserted":
        out = data[:to] + piece + data[to:]
    else:
        out = data[:to] + piece + data[to + len(piece) :]
    return Mutant(out, f"{len(piece)} bytes of {start} {how} at {to}", None, "splices")


def byte_run(chance: random.Random, data: bytes) -> Mutant:
    """Overwrite a run with zeros, ones or noise."""
    start = chance.randrange(len(data))
    size = min(chance.randrange(1, 65), len(data) - start)
    run = chance.choice((bytes(size), b"\xff" * size, chance.randbytes(size)))
    return Mutant(
        data[:start] + run + data[start + size :],
        f"{size} bytes overwritten at {start}",
        (start, start + size),
        "byte runs",
    )


def edit_length(chance: random.Random, data: bytes, lengths: tuple[LengthField, ...]) -> Mutant:
    """Have one of the file's lengths lie."""
    field = chance.choice(lengths)
    stop = field.at + field.size
    old = from_varint(data[field.at : stop]) if field.varint else int.from_bytes(data[field.at : stop], "little")
    near = (0, 1, old - 1, old + 1, 2 * old, old ^ 0x80, old + 256)
    far = (len(data) - stop, len(data), 2**28, 2**30 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 1)
    value = max(chance.choice(chance.choice((near, far))), 0)
    new = to_varint(value) if field.varint else (value % 256**field.size).to_bytes(field.size, "little")
    touched = (field.at, stop) if len(new) == field.size else None
    return Mutant(
        data[: field.at] + new + data[stop:], f"length at {field.at} from {old} to {value}", touched, "lengths"
    )


def to_varint(value: int) -> bytes:
    """A protobuf varint.

    >>> to_varint(300).hex()
    'ac02'
    """
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def from_varint(data: bytes) -> int:
    """The value of the varint that is ``data``."""
    return sum((byte & 0x7F) << 7 * i for i, byte in enumerate(data))
