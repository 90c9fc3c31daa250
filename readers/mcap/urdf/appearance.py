"""Rotations and colours as Rerun's components hold them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .model import Vector

Floats = npt.NDArray[np.float32]


def quaternion(rpy: Vector) -> Floats:
    """The rotation by roll about x, then pitch about y, then yaw about z (rad), as (x, y, z, w) in single precision.

    The formula is that of Ken Shoemake (Euler Angle Conversion, Graphics Gems IV, 1994).

    >>> quaternion((0.0, 0.0, 0.0)).tolist()
    [0.0, 0.0, 0.0, 1.0]
    """
    half = (np.asarray(rpy, np.float32) * np.float32(0.5)).astype(np.float64)
    (sx, sy, sz), (cx, cy, cz) = np.sin(half).astype(np.float32), np.cos(half).astype(np.float32)
    cc, cs, sc, ss = cx * cz, cx * sz, sx * cz, sx * sz
    return np.array([cy * sc - sy * cs, cy * ss + sy * cc, cy * cs - sy * sc, cy * cc + sy * ss], np.float32)


def packed_color(rgba: Vector) -> int:
    """A linear colour (0 to 1, not premultiplied) as 0xRRGGBBAA in sRGB.

    As in Rerun, colours are held premultiplied in 8 bits on the way, which costs translucent ones some of their digits.

    >>> hex(packed_color((1.0, 0.0, 0.0, 1.0))), hex(packed_color((0.5, 0.25, 0.0, 0.5)))
    ('0xff0000ff', '0xbb890080')
    """
    alpha = _byte(rgba[3] * 255)
    if rgba[3] <= 0 or alpha == 0:
        return 0
    channels = [_gamma(channel) for channel in rgba[:3]]
    if alpha < 255:
        channels = [_byte(_byte(channel * alpha / 255) * 255 / alpha) for channel in channels]
    red, green, blue = channels
    return red << 24 | green << 16 | blue << 8 | alpha


def _gamma(linear: float) -> int:
    """The sRGB transfer function (IEC 61966-2-1), times 255."""
    if not linear > 0:
        return 0
    if linear <= 0.0031308:
        return _byte(12.92 * 255 * linear)
    return _byte(255 * (1.055 * min(linear, 1.0) ** (1 / 2.4) - 0.055))


def _byte(value: float) -> int:
    return int(min(max(value, 0.0), 255.0) + 0.5) if value == value else 0
