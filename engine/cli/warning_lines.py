"""Warnings as short lines on stderr."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import ReadWarning
from ..locations import Location
from .failures import complain


@contextmanager
def warnings_as_lines(path: Location) -> Iterator[None]:
    """Print what is warned of while ``path`` is read after it was read: each text once, on one line, with the path."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ReadWarning)
        try:
            yield
        finally:
            for text in dict.fromkeys(str(warning.message) for warning in caught):
                complain(text if str(path) in text else f"{path}: {text}", kind="warning")
