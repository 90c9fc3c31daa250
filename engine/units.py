"""Numbers as people read them."""

from __future__ import annotations


def size(num_bytes: float) -> str:
    """Bytes in steps of 1000.

    >>> size(999), size(782_496), size(36_960_085)
    ('999 B', '782.5 kB', '37.0 MB')
    """
    value = float(num_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def part_of_size(done: int, total: int) -> str:
    """Two sizes, the unit named once where it is the same.

    >>> part_of_size(63_000_000, 104_200_000), part_of_size(900, 2_000_000)
    ('63.0/104.2 MB', '900 B/2.0 MB')
    """
    (first, unit), (second, same) = size(done).split(" "), size(total).split(" ")
    return f"{first}/{second} {unit}" if unit == same else f"{first} {unit}/{second} {same}"


def duration(seconds: float) -> str:
    """A length of time, with as many digits as matter.

    >>> duration(0.0421), duration(12.34), duration(754), duration(7322)
    ('0.04 s', '12.3 s', '12 min 34 s', '2 h 02 min')
    """
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
