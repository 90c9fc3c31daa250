"""Outputs of commands, under one rule: a file is replaced only if it is an RRD, or with ``--overwrite``.

A suffix that has no writer is an error, and an input is never replaced. Missing parent folders are made, and removed
again if nothing was written into them. Importing this needs click alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from ..errors import UsageError, writing
from ..limits import is_text
from ..locations import Location, exists, located, reading_location, writable
from ..storage import ObjectUrl, bucket_of
from .complaints import reported
from .standard_streams import DASH

_Command = TypeVar("_Command", bound=Callable[..., Any] | click.Command)

RECORDINGS: Final = (".rrd", ".rbl", ".mcap")
ROWS: Final = (".parquet", ".arrow")
REPORTS: Final = (".json", ".html")
PICTURES: Final = (".svg",)


class OutputOption(click.Option):
    """An option for an output of a command: ``writes`` are the suffixes of its files; empty: a local folder.

    ``folder``: the name may be that of a folder. ``piped``: it may be ``-``, standard output.
    """

    def __init__(
        self, *names: Any, writes: tuple[str, ...], folder: bool = False, piped: bool = False, **given: Any
    ) -> None:
        super().__init__(*names, **given)
        self.writes = writes
        self.folder = folder
        self.piped = piped

    def checked(self, output: str, *, overwrite: bool) -> Location | None:
        """The place of an output; None for standard output. Raises ``UsageError`` if the rule refuses it."""
        if output == DASH:
            if self.piped:
                return None
            raise UsageError(
                "this command does not write to standard output",
                hint="Give a file name; for a file called '-', write './-'.",
            )
        if not is_text(output):
            raise UsageError(f"the name {output!r} is not UTF-8", hint="Choose another: paths have to be UTF-8.")
        place = writable(reading_location(output))
        if not self.writes:
            return _local_folder(place, output)
        if self.writes == RECORDINGS and is_folder(output):
            if self.folder:
                return place
            raise UsageError("this is a folder, but the output is a file", path=output, hint="Name a file.")
        self._check_suffix(place, output)
        check_replaced([place], overwrite=overwrite)
        return place

    def _check_suffix(self, place: Location, output: str) -> None:
        if isinstance(place, ObjectUrl) and self.writes != RECORDINGS:
            raise UsageError(
                "this output is written to local files only", path=output, hint="Write a local file, then upload it."
            )
        suffix = place.suffix.lower()
        if suffix in self.writes or (not suffix and self.writes == RECORDINGS):
            return
        *others, last = self.writes
        written = f"{', '.join(others)} and {last}" if others else last
        into_folder = " To write a folder, end its name with '/'." if self.folder else ""
        raise UsageError(
            f"there is no writer for {f'files {suffix}' if suffix else 'a name without a suffix'}",
            path=output,
            hint=f"{self.opts[0]} writes {written}.{into_folder}",
        )


class WritingCommand(click.Command):
    """A command whose :class:`OutputOption` options are checked before it runs.

    If an output is a file, the command has ``--overwrite``, too. The parent folders of outputs are made.
    """

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The command's own options, and ``--overwrite`` after the first output option."""
        params = super().get_params(ctx)
        at = next((i for i, param in enumerate(params) if isinstance(param, OutputOption) and param.writes), None)
        return params if at is None else [*params[: at + 1], _OVERWRITE, *params[at + 1 :]]

    def invoke(self, ctx: click.Context) -> Any:
        """Check the outputs, and run the command."""
        given = [(option, ctx.params[option.name or ""]) for option in outputs_of(self)]
        overwrite = ctx.params.get("overwrite", False)
        with ExitStack() as made:
            made.enter_context(reported(debug=ctx.params.get("debug", False)))
            if ctx.params.get("as_json") and any(output == DASH for _, output in given):
                raise UsageError("-o - and --json both write to standard output")
            places = [option.checked(output, overwrite=overwrite) for option, output in given if output is not None]
            for place in places:
                if place is not None:
                    made.enter_context(output_folder(place.parent))
            return super().invoke(ctx)


_OVERWRITE: Final = click.Option(
    ["--overwrite"], is_flag=True, help="Replace an existing output. An RRD is always replaced."
)


def outputs_of(command: click.Command) -> list[OutputOption]:
    """The options of a command that name an output."""
    return [param for param in command.params if isinstance(param, OutputOption)]


def output_option(*names: str, **given: Any) -> Callable[[_Command], _Command]:
    """An :class:`OutputOption` as a decorator, for a :class:`WritingCommand`."""
    return click.option(*names, cls=OutputOption, **given)


REPORT: Final = output_option(
    "--report",
    writes=REPORTS,
    metavar="FILE",
    help="Save the run report as FILE.json, or as a page FILE.html.",
)


def _local_folder(place: Location, output: str) -> Location:
    """The place of a folder that a command makes, or adds to."""
    if isinstance(place, ObjectUrl):
        raise UsageError(
            "this output is written to a local folder only", path=output, hint="Write a local folder, then upload it."
        )
    if os.path.lexists(place) and not place.is_dir():
        raise UsageError("this is not a folder, and is never replaced", path=output, hint="Name a folder.")
    return place


def is_folder(output: str) -> bool:
    """Return whether an output is a folder, by its name or because one exists."""
    if output.endswith(("/", os.sep)):
        return True
    location = reading_location(output)
    if isinstance(location, ObjectUrl):
        from ...readers import is_rrd
        from ..storage.folder import Folder

        return not location.key or (not is_rrd(location.name) and Folder.at(location).exists())
    return location.is_dir()


def check_replaced(places: Sequence[Location], *, overwrite: bool) -> None:
    """Raise ``UsageError`` if a file at the place may not be replaced."""
    for place in _taken(places):
        if isinstance(place, Path) and place.exists() and not (place.is_file() or place.is_dir()):
            raise UsageError("this is a device or a pipe", path=str(place), hint="Name a file, or '-' for a pipe.")
        if not overwrite and not _is_replaced(place):
            raise UsageError(
                "this file exists, and is not an RRD",
                path=str(place),
                hint="Replace it with --overwrite, or give another name.",
            )


def format_in_folder(output: str, to: str | None) -> str | None:
    """Return the format of the files if ``to`` (``--to``) makes the output a folder; None if it is a file.

    The suffix is a file's format, and ``to`` the format in a folder. Raises ``UsageError`` if they disagree.
    """
    suffix = "" if is_folder(output) else reading_location(output).suffix.lower()
    own = "mcap" if suffix == ".mcap" else "rrd"
    if to is None or (suffix in RECORDINGS and to == own):
        return None
    if suffix in RECORDINGS:
        raise UsageError(
            f"--to {to} contradicts the output's name, which has the suffix of an {own.upper()}",
            path=output,
            hint="Leave out --to: the suffix of a file sets its format. To write a folder, end its name with '/'.",
        )
    return to


def is_mcap(place: Location) -> bool:
    """Return whether an output is an MCAP, by its name."""
    return place.suffix.lower() == ".mcap"


def check_apart(output: str, sources: Iterable[Location]) -> None:
    """Raise ``UsageError`` if an output is one of the inputs: it would be lost while it is read."""
    place = resolved(located(output))
    if any(resolved(source) == place for source in sources):
        raise is_input(output)


def is_input(output: str) -> UsageError:
    """The error on an output that is an input."""
    return UsageError("this file is an input and would be overwritten", path=output, hint="Choose another output.")


def resolved(location: Location) -> Location:
    """The canonical name of a place."""
    return location if isinstance(location, ObjectUrl) else location.resolve()


def _taken(places: Sequence[Location]) -> list[Location]:
    """The places that exist. Many objects are found by one listing of the folder above them."""
    objects = [place for place in places if isinstance(place, ObjectUrl)]
    if len(objects) < _LISTED_FROM:
        return [
            place for place in places if (exists(place) if isinstance(place, ObjectUrl) else os.path.lexists(place))
        ]
    above = os.path.commonpath([place.parent.key or "." for place in objects])
    keys = {entry.url.key for entry in bucket_of(objects[0]).list("" if above == "." else above, odd=lambda *_: None)}
    return [place for place in objects if place.key in keys]


_LISTED_FROM: Final = 16
"""From this number of objects on, a listing costs less than a request for each."""


def _is_replaced(place: Location) -> bool:
    """Return whether the file is an RRD, by its first bytes."""
    from ...readers import FORMATS

    return (not isinstance(place, Path) or place.is_file()) and FORMATS["rrd"].begins(place)


@contextmanager
def output_folder(folder: Location) -> Iterator[None]:
    """Create ``folder`` and its missing parents, and remove those again that stay empty.

    In an object store there is nothing to make. Raises ``WriteError``.
    """
    if not isinstance(folder, Path):
        yield
        return
    missing = [f for f in (folder, *folder.parents) if not f.exists()]
    with writing(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):
            for empty in missing:
                empty.rmdir()
