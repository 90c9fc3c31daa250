"""Where the columnar reader stands: one row for each message, or for each element of a sequence, that is being read."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .cdr_layout import Block
from .message_types import CDR, Wire


@dataclass
class Batch:
    """The bytes of many messages, and what was found wrong with some: rows of (message indices, text)."""

    data: np.ndarray
    order: str
    wire: Wire = CDR
    faults: list[tuple[np.ndarray, str]] = field(default_factory=list)


class Frame:
    """Places in a batch, all arrays int64 of one length: ``place`` is read next, ``base`` is what alignment counts
    from, ``end`` is where the message ends, ``owner`` the message's index, ``row`` the row of the frame above.
    """

    __slots__ = ("base", "batch", "end", "owner", "place", "row")

    def __init__(
        self, batch: Batch, place: np.ndarray, base: np.ndarray, end: np.ndarray, owner: np.ndarray, row: np.ndarray
    ) -> None:
        self.batch = batch
        self.place = place
        self.base = base
        self.end = end
        self.owner = owner
        self.row = row

    def __len__(self) -> int:
        return len(self.place)

    def keep(self, mask: np.ndarray) -> None:
        """Go on with the rows where ``mask`` holds."""
        if not mask.all():
            self.place, self.base, self.end = self.place[mask], self.base[mask], self.end[mask]
            self.owner, self.row = self.owner[mask], self.row[mask]

    def require(self, good: np.ndarray, what: str) -> bool:
        """Drop the rows where ``good`` does not hold, as faults of their messages; True when none was dropped."""
        if good.all():
            return True
        self.batch.faults.append((self.owner[~good], what))
        self.keep(good)
        return False

    def residues(self, align: int) -> np.ndarray:
        """How far each place is past a multiple of ``align``."""
        past: np.ndarray = (self.place - self.base) & (align - 1)
        return past

    def enter(self, block: Block) -> tuple[np.ndarray, int | None]:
        """Make sure that ``block`` fits. Returns the residues, and the one residue when all rows share it."""
        residues = self.residues(block.align)
        common = int(residues[0]) if len(residues) and bool((residues == residues[0]).all()) else None
        size = block.sizes[residues] if common is None else block.layout(common)[1]
        good = self.place + size <= self.end
        if not self.require(good, f"{block.parts[-1].path if block.parts else ''}: the message ends before it"):
            residues = residues[good]
        return residues, common
