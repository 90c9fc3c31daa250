"""Robot descriptions found by the index of a file that is read in several splits."""

from __future__ import annotations

import numpy as np

from ..file import McapFile
from ..layout import read_layout
from ..registry import Registry
from ..section import SectionReader
from ..split import McapSplit
from .descriptions import Descriptions


def indexed_descriptions(file: McapFile, descriptions: Descriptions, registry: Registry) -> None:
    """Fill ``descriptions``: of each of its channels the last message that can be read.

    Only chunks that hold such a channel are read, from the last one on.
    """
    if not descriptions.missing():
        return
    summary = read_layout(file).summary
    for entry in reversed(summary.chunks if summary is not None else ()):
        missing = descriptions.missing()
        if not missing:
            return
        held = set(np.frombuffer(entry.channel_ids, "<u2").tolist())
        if held and not held & missing:
            continue
        split = McapSplit("", entry.length, entry.offset, entry.end, chunks=1)
        groups = list(SectionReader(file, split, registry).groups())
        for group in reversed(groups):
            descriptions.add_earlier(*group)
