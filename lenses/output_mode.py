"""What becomes of the columns that no lens consumes."""

from __future__ import annotations

from typing import Literal, cast, get_args

from ..engine.errors import check_argument

OutputMode = Literal["drop_unmatched", "forward_unmatched", "forward_all"]
"""Keep only what lenses make; also the columns that no lens reads; or all original columns."""


def checked_mode(text: str) -> OutputMode:
    """The mode called ``text``. Raises ``ValueError`` with the modes there are."""
    check_argument("output_mode", text, str)
    if text not in get_args(OutputMode):
        raise ValueError(
            f"Unknown output_mode '{text}', expected 'forward_all', 'forward_unmatched', or 'drop_unmatched'"
        )
    return cast("OutputMode", text)
