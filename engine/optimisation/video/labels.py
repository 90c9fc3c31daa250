"""The key frames that a recording names, compared with those in its samples."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from .survey import Ticks

_SHOWN = 3


def disagreement(keyframes: Ticks, times: Ticks, values: npt.NDArray[np.bool_]) -> str | None:
    """What is wrong with labels at ``times``, given the times of the key frames; None when they agree."""
    found, labelled = set(keyframes.tolist()), set(times[values].tolist())
    missing, extra, negative = sorted(found - labelled), sorted(labelled - found), times[~values].tolist()
    parts = []
    if missing:
        parts.append(f"{len(missing)} codec keyframe(s) missing an `is_keyframe=true` label ({_examples(missing)})")
    if extra:
        parts.append(
            f"{len(extra)} sample(s) labeled `is_keyframe=true` that are not codec keyframes ({_examples(extra)})"
        )
    if negative:
        parts.append(
            f"{len(negative)} `is_keyframe=false` row(s) ({_examples(negative)}); "
            "`is_keyframe` is a sparse marker, only `true` should be logged"
        )
    return "; ".join(parts) if parts else None


def _examples(times: Iterable[int]) -> str:
    shown = list(times)
    more = f" (+{len(shown) - _SHOWN} more)" if len(shown) > _SHOWN else ""
    return f"e.g. at times {', '.join(map(str, shown[:_SHOWN]))}{more}"
