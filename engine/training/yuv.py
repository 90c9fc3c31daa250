"""Frames as planes of brightness and colour, and collate functions for them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..errors import MissingExtraError, ReadWarning, UsageError, extra_command
from .pixels import RANGES, WEIGHTS

try:
    import torch
    from torch.utils.data import default_collate
except ImportError as failure:
    raise MissingExtraError("frames as tensors need torch", hint=extra_command("training")) from failure

ColorSpace = Literal["bt601", "bt709", "bt2020", "unspecified"]
ColorRange = Literal["limited", "full", "unspecified"]


@dataclass(frozen=True)
class Yuv420Frame:
    """One frame or several in YUV 4:2:0, as ``uint8``.

    Parameters
    ----------
    y
        Brightness, of shape ``(..., 1, height, width)``.
    uv
        Colour, of shape ``(..., 2, ceil(height / 2), ceil(width / 2))``: U and V.
    color_space, color_range
        The meaning of the numbers.

    Raises
    ------
    TypeError, ValueError
        The planes are not ``uint8``, or do not fit each other; there is no such colour space or range.
    """

    y: torch.Tensor
    uv: torch.Tensor
    color_space: ColorSpace
    color_range: ColorRange

    def __post_init__(self) -> None:
        if self.y.dtype != torch.uint8 or self.uv.dtype != torch.uint8:
            raise TypeError(f"planes must be uint8, got {self.y.dtype} and {self.uv.dtype}")
        height, width = self.y.shape[-2:]
        expected = (*self.y.shape[:-3], 2, -(-height // 2), -(-width // 2))
        if self.y.ndim < 3 or self.y.shape[-3] != 1 or tuple(self.uv.shape) != expected:
            raise UsageError(f"planes of shapes {tuple(self.y.shape)} and {tuple(self.uv.shape)} are not YUV 4:2:0")
        if self.color_space not in (*WEIGHTS, "unspecified"):
            raise UsageError(f"color_space: expected one of {', '.join(WEIGHTS)}, got {self.color_space!r}")
        if self.color_range not in (*RANGES, "unspecified"):
            raise UsageError(f"color_range: expected one of {', '.join(RANGES)}, got {self.color_range!r}")

    @classmethod
    def stack(cls, frames: Sequence[Yuv420Frame]) -> Yuv420Frame:
        """Stack frames into a batch.

        Raises ``ValueError`` for no frames, and for frames of different colour spaces or ranges.
        """
        kinds = {(frame.color_space, frame.color_range) for frame in frames}
        if len(kinds) != 1:
            raise UsageError(f"all frames of a batch must have the same colour space and range, got {sorted(kinds)}")
        ys, uvs = [frame.y for frame in frames], [frame.uv for frame in frames]
        return cls(torch.stack(ys), torch.stack(uvs), *kinds.pop())

    def clone(self) -> Yuv420Frame:
        """Return a copy."""
        return replace(self, y=self.y.clone(), uv=self.uv.clone())

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Yuv420Frame:
        """Return the frame on a device."""
        y, uv = (some.to(device, non_blocking=non_blocking) for some in (self.y, self.uv))
        return replace(self, y=y, uv=uv)

    def pin_memory(self) -> Yuv420Frame:
        """Return a copy in pinned memory."""
        return replace(self, y=self.y.pin_memory(), uv=self.uv.pin_memory())

    def to_rgb(
        self,
        device: torch.device | str | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        normalize: bool = True,
        non_blocking: bool = False,
        color_space: Literal["bt601", "bt709", "bt2020"] | None = None,
        color_range: Literal["limited", "full"] | None = None,
    ) -> torch.Tensor:
        """Return RGB of shape ``(..., 3, height, width)``. Four pixels share one colour.

        Parameters
        ----------
        device
            The device of the result; by default that of the planes.
        dtype
            A type of floating-point numbers.
        normalize
            Whether numbers are from 0 to 1 instead of from 0 to 255.
        non_blocking
            Do not wait until planes are copied.
        color_space, color_range
            Used instead of the frame's own. If both are missing, BT.601 and the limited range are used, with a warning.

        Raises
        ------
        TypeError
            The type is not of floating-point numbers.
        """
        if not dtype.is_floating_point:
            raise TypeError(f"dtype: expected one of floating-point numbers, got {dtype}")
        space, numbers = color_space or self.color_space, color_range or self.color_range
        if "unspecified" in (space, numbers):
            space = "bt601" if space == "unspecified" else space
            numbers = "limited" if numbers == "unspecified" else numbers
            warnings.warn(
                ReadWarning(f"frames do not declare their colour space, assuming {space}, {numbers}"), stacklevel=2
            )
        target = self.y.device if device is None else device
        y = self.y.to(target, dtype, non_blocking=non_blocking)
        uv = self.uv.to(target, dtype, non_blocking=non_blocking)
        black, brightness, colour = RANGES[numbers]
        y = (y[..., 0, :, :] - black) / brightness
        uv = (uv - 128.0) / colour
        uv = uv.repeat_interleave(2, -2)[..., : y.shape[-2], :].repeat_interleave(2, -1)[..., : y.shape[-1]]
        u, v = uv[..., 0, :, :], uv[..., 1, :, :]
        of_red, of_blue = WEIGHTS[space]
        red = y + 2 * (1 - of_red) * v
        blue = y + 2 * (1 - of_blue) * u
        green = (y - of_red * red - of_blue * blue) / (1 - of_red - of_blue)
        rgb = torch.stack([red, green, blue], -3).clamp(0, 1)
        return rgb if normalize else rgb * 255


def _collated(values: Sequence[Any]) -> Any:
    first = values[0]
    if isinstance(first, Yuv420Frame):
        return Yuv420Frame.stack(values)
    if isinstance(first, Mapping):
        return {name: _collated([value[name] for value in values]) for name in first}
    return default_collate(list(values))


class Yuv420Collator:
    """Makes batches like PyTorch, and stacks the planes of frames. It is a ``collate_fn`` for a ``DataLoader``."""

    def __call__(self, samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return samples as a batch.

        Raises ``ValueError`` for samples with different fields, and for a field without a value.
        """
        if any(sample.keys() != samples[0].keys() for sample in samples):
            raise UsageError("the samples of a batch have different fields")
        for name in samples[0] if samples else ():
            if any(sample[name] is None for sample in samples):
                raise UsageError(f"a sample has no value of the field {name!r}", hint="Skip such samples first.")
        return {name: _collated([sample[name] for sample in samples]) for name in (samples[0] if samples else ())}


class PooledBatchCollator:
    """Makes batches like Rerun's class with this name, but without a pool: each batch has its own memory.

    Parameters
    ----------
    slots_per_field, max_pool_bytes
        Accepted for scripts written for Rerun, but without effect, with a warning.

    Raises
    ------
    ValueError
        One of them is less than 1.
    """

    def __init__(self, *, slots_per_field: int | None = None, max_pool_bytes: int | None = None) -> None:
        for name, value in (("slots_per_field", slots_per_field), ("max_pool_bytes", max_pool_bytes)):
            if value is not None and value < 1:
                raise UsageError(f"{name}: expected 1 or more, got {value}")
            if value is not None:
                warnings.warn(ReadWarning(f"{name} has no effect here: batches are not pooled"), stacklevel=2)

    def __call__(self, samples: Sequence[Any]) -> Any:
        """Return samples as a batch."""
        return _collated(samples) if samples else default_collate(list(samples))
