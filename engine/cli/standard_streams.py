"""Standard input and output as recordings, ``-`` in place of a file, and the names of places for users.

Recordings are read by position and written with a footer that is known last, so both go through a file in the scratch
folder.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ..errors import UsageError, writing

DASH: Final = "-"
"""Standard input, or standard output."""

_files: set[str] = set()
"""The files used for them, even removed ones, as errors are shown after the removal."""


def as_given(text: str) -> str:
    """A text without the names of the files behind standard input and output."""
    for file in sorted(_files, key=len, reverse=True):
        text = text.replace(file, DASH)
    return text


_names: dict[str, str] = {}
"""The names of places that a user knows by another name."""


def name_place(place: object, name: str) -> None:
    """Show a place by ``name``, if its path says nothing to the user, such as that of a catalog's dataset."""
    _names[str(place)] = name


def as_known(text: str) -> str:
    """A text with the user's names of files and places; a path below such a place stays whole."""
    for place, name in _names.items():
        text = re.sub(rf"{re.escape(place)}(?![\w/])", name.replace("\\", r"\\"), text)
    return as_given(text)


@contextmanager
def from_standard_input(arguments: Sequence[str]) -> Iterator[list[str]]:
    """The arguments, with a file of the bytes of standard input in place of ``-``.

    Raises ``UsageError`` if ``-`` is given twice, or standard input is a terminal or holds nothing.
    """
    if DASH not in arguments:
        yield list(arguments)
        return
    hint = "Pipe a recording in: `… | chunkmill … -`; for a file called '-', write './-'."
    if arguments.count(DASH) > 1:
        raise UsageError("'-' is given twice, but standard input is a single recording", hint=hint)
    if sys.stdin.isatty():
        raise UsageError("'-' reads a recording from standard input, but that is a terminal", hint=hint)
    with _file("stdin") as path:
        with writing(str(path)), path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        if not path.stat().st_size:
            raise UsageError("standard input is empty", hint=hint)
        yield [str(path) if argument == DASH else argument for argument in arguments]


@contextmanager
def to_standard_output(output: str) -> Iterator[str]:
    """The name of a file to write; its bytes go to standard output if ``output`` is ``-``.

    They go there as a whole when the block ends; after an error, nothing does. Raises ``UsageError`` if standard output
    is a terminal.
    """
    if output != DASH:
        yield output
        return
    if sys.stdout.isatty():
        raise UsageError(
            "an RRD cannot be written to a terminal",
            hint="Redirect it, or give a file name; for a file called '-', write './-'.",
        )
    with _file("stdout.rrd") as path:
        yield str(path)
        with path.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.buffer.flush()


@contextmanager
def _file(name: str) -> Iterator[Path]:
    """A file in a folder of its own, in the scratch folder if that is local."""
    from ..execution import scratch_folder

    scratch = scratch_folder()
    above = scratch if isinstance(scratch, Path) and scratch.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="chunkmill-streams-", dir=above) as folder:
        file = Path(folder, name)
        _files.update((str(file), str(file.resolve())))
        yield file
