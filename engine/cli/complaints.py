"""Complaints on stderr: an exception as one paragraph and an exit code, warnings as lines."""

from __future__ import annotations

import json
import os
import re
import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import click

from ..errors import ChunkmillError, ReadWarning, UsageError
from ..locations import Location
from ..spark import INTERRUPTED, TERMINATED, Terminated, interruptible, signal_since
from .standard_streams import as_given, as_known

FAILED = 1
BAD_USAGE = 2


@contextmanager
def reported(*, debug: bool) -> Iterator[None]:
    """Run a command: print an error as one paragraph on stderr, with a trace if ``debug``, and set the exit code."""
    began = time.monotonic()
    with interruptible():
        try:
            yield
        except (click.exceptions.Exit, click.ClickException):
            raise
        except (KeyboardInterrupt, Terminated) as interrupt:
            raise _interrupted(interrupt) from None
        except BrokenPipeError:
            # The reader of our output has gone; python must not try to flush to it at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise click.exceptions.Exit(FAILED) from None
        except Exception as error:  # noqa: BLE001 (the last line of defence: no trace reaches the user unasked)
            lost = signal_since(began)
            if lost is not None:
                raise _interrupted(lost) from None
            show(error, debug=debug)
            raise click.exceptions.Exit(exit_code(error)) from None


def _interrupted(interrupt: BaseException) -> click.exceptions.Exit:
    """Report the interrupt, and return the exit code; ``interrupt`` may say what was done."""
    word, code = ("terminated", TERMINATED) if isinstance(interrupt, Terminated) else ("interrupted", INTERRUPTED)
    complain(f"{word}; {str(interrupt) or 'nothing was written for the input in progress'}")
    return click.exceptions.Exit(code)


def show(error: Exception, *, debug: bool, path: Location | None = None) -> None:
    """Print ``error`` as one paragraph on stderr, with ``debug`` after its trace; it always names ``path``."""
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    text = paragraph(error)
    if path is not None and str(path) not in text:
        number, _, text = text.partition(": ")
        text = f"{number}: {path}: {text}"
    complain(text)


def complain(text: str, *, kind: str = "error") -> None:
    """Print one line, whatever is in ``text``, on stderr: ``chunkmill: error: ...``."""
    label = click.style(f"{kind}:", fg="red" if kind == "error" else "yellow", bold=True)
    for python, words in _WORDS.items():
        text = re.sub(python, words, text)
    click.echo(f"chunkmill: {label} {one_line(as_known(text))}", err=True)


_RECOVER: Final = "`chunkmill convert FILE -o OUT --recover`"
_WORDS: Final = {
    r"with recover=True(?!, or with `chunkmill)": f"with {_RECOVER}",
    r"from RrdReader\(path, recover=True\)": f"with {_RECOVER}",
    r"on_duplicate='replace' or 'skip'": "--on-duplicate replace or skip",
    r"another layer name\b": "another --layer NAME",
    r"dataset\.do_maintenance\(optimize_indexes=True\)": "`chunkmill catalog maintain LAKE`",
    r"several indexes, but index= is": "several indexes, but --index is",
}
"""Patterns of Python's arguments and calls in messages, with the words for them on the command line."""


def exit_code(error: Exception) -> int:
    """Return 2 if the call itself was wrong, else 1."""
    return BAD_USAGE if isinstance(error, UsageError) else FAILED


def paragraph(error: Exception) -> str:
    """Describe an error in a few sentences: its number, the fault, its place, and the remedy.

    >>> paragraph(FileNotFoundError(2, "No such file or directory", "drive.mcap"))
    'CM001: drive.mcap: no such file or directory.'
    """
    return str(error if isinstance(error, ChunkmillError) else ChunkmillError(_said(error)))


def _said(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename is not None else ""
        return f"{where}{error.strerror[0].lower()}{error.strerror[1:]}."
    if isinstance(error, MemoryError):
        return "There is not enough memory. Try fewer cores, such as --master 'local[1]'."
    first_line = next(iter(str(error).splitlines()), "")
    return (
        f"Unexpected error: {type(error).__name__}: {first_line} "
        "This is a bug in chunkmill; --debug shows the traceback."
    )


def error_facts(error: Exception) -> dict[str, Any]:
    """An error as JSON data, whatever it is."""
    own_error = error if isinstance(error, ChunkmillError) else ChunkmillError(_said(error))
    facts = own_error.to_dict()
    return {**facts, "message": as_given(facts["message"]), "path": facts["path"] and as_given(facts["path"])}


def echo_json(facts: Mapping[str, Any]) -> None:
    """Print facts on stdout, as a JSON object on a line."""
    click.echo(json.dumps(facts, ensure_ascii=False, default=str))


def one_line(text: str) -> str:
    """``text`` with every run of white space as one blank and without control characters.

    >>> one_line("a\\n  b\\x1b[31m")
    'a b[31m'
    """
    return "".join(c for c in " ".join(text.split()) if c.isprintable())


@contextmanager
def warnings_as_lines(
    path: Location | str, printed: set[str] | None = None, *, but: tuple[type[Warning], ...] = ()
) -> Iterator[None]:
    """Print the warnings of reading ``path`` at its end: each text once, on one line, with the path.

    Texts in ``printed`` are not printed again, as episodes of a dataset have the same warnings. Warnings of the
    categories ``but`` are not printed at all.
    """
    printed = set() if printed is None else printed
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ReadWarning)
        try:
            yield
        finally:
            texts = (str(warning.message) for warning in caught if not issubclass(warning.category, but))
            for line in (text if str(path) in text else f"{path}: {text}" for text in texts):
                if line not in printed:
                    printed.add(line)
                    complain(line, kind="warning")
