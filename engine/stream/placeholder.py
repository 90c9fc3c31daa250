"""A source that stands for an input nobody has named yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..chunk import Chunk
from .source import Split


class PlaceholderSource:
    """No chunks at all, for looking at a pipeline without an input."""

    def describe(self) -> str:
        """One line for the plan."""
        return "INPUT"

    def splits(self) -> Sequence[Split]:
        """None."""
        return ()

    def read(self, split: Split) -> Iterator[Chunk]:  # noqa: ARG002 (there is none)
        """Nothing."""
        return iter(())
