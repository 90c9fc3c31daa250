"""A format as a class for one of its files; the fields of the class are the options.

A :class:`RecordingFile` turns a file into streams, and makes the report of ``chunkmill inspect``. A :class:`FileSource`
also reads the file itself. Each further field of such a dataclass, made by :func:`option`, is an option of the command
line, of Spark's data source and of :class:`Ingest`. This module imports little, as the command line's help needs it.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from fnmatch import fnmatch
from functools import lru_cache
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, NamedTuple, Protocol, Unpack, runtime_checkable

from ..engine.errors import UsageError
from ..engine.locations import Location, located

if TYPE_CHECKING:
    import pandas

    from ..engine.chunk import Chunk, Schema
    from ..engine.rrd import StoreEntry, Verification
    from ..engine.store import LazyStore
    from ..engine.stream import Content, FrameChoices, LazyChunkStream, Split
    from .inspection import FileReport, OrderReport

_METADATA = "chunkmill.option"

_SMALL_BYTES = 512 * 2**20
"""A local file up to this size becomes a frame before Spark has started: 2.4 s for 300 MB of a topic (2 cores)."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a format.

    ``name`` is the name of the field, and the name in Spark. ``flag`` is the name on the command line (None if it has
    no flag), and in :class:`Ingest`. With ``many`` the option may be repeated; in Spark, commas separate values.
    ``parse`` converts text to a value, or raises ``ValueError``; None if the option has no text form. ``switch`` is the
    value of a flag without an argument. With ``refused``, a description of the option, files of other formats raise an
    error.
    """

    name: str
    default: Any
    help: str
    flag: str | None = None
    metavar: str | None = None
    many: bool = False
    choices: tuple[str, ...] = ()
    parse: Callable[[str], Any] | None = str
    switch: bool | None = None
    refused: str | None = None

    @property
    def keyword(self) -> str | None:
        """The name of the flag as a Python argument.

        >>> Option("include_topic_regex", (), "Topics to read.", flag="--topics").keyword
        'topics'
        """
        return None if self.flag is None else self.flag.lstrip("-").replace("-", "_")

    def from_text(self, text: str) -> Any:
        """Convert text to a value. Raises ``UsageError``.

        >>> Option("static_columns", (), "Columns.", many=True).from_text("site, robot")
        ('site', 'robot')
        """
        assert self.parse is not None
        if self.switch is not None:
            if text.strip().lower() not in ("true", "false"):
                raise UsageError(f"option {self.name!r}: expected 'true' or 'false', got {text!r}")
            return text.strip().lower() == "true"
        try:
            if self.many:
                return tuple(self.parse(part.strip()) for part in text.split(",") if part.strip())
            return self.parse(text)
        except ValueError as error:
            raise UsageError(f"option {self.name!r}: {error}") from None


def option(
    default: Any,
    help: str,  # noqa: A002 (the word of click)
    *,
    flag: str | None = None,
    metavar: str | None = None,
    choices: tuple[str, ...] = (),
    parse: Callable[[str], Any] | None = str,
    switch: bool | None = None,
    refused: str | None = None,
) -> Any:
    """A field of a :class:`RecordingFile` that users can set; see :class:`Option`.

    If the default of a field is a tuple, the option may be repeated.
    """
    many = isinstance(default, tuple)
    made = Option("", default, help, flag, metavar, many, choices, parse, switch, refused)
    return field(default=default, metadata={_METADATA: made})


def recover_option() -> Any:
    """The option of formats that can recover a cut or damaged file."""
    return option(
        False,
        "Read the intact parts of a truncated or damaged MCAP, bag or RRD, and report the loss.",
        flag="--recover",
        switch=True,
    )


def b_frames_option() -> Any:
    """The option of formats with video, as a ``VideoStream`` cannot hold B-frames."""
    return option(
        "reencode",
        "How to handle videos with B-frames: re-encode them, or fail.",
        flag="--b-frames",
        choices=("reencode", "error"),
    )


class Episode(NamedTuple):
    """One of several recordings in a folder: its number (or id), and a name that is usable as a file name."""

    number: int | str
    name: str


class FrameReader(ABC):
    """A reader that can return its recording as a DataFrame."""

    frame_index: ClassVar[str | None] = None
    """The default timeline for the index of a DataFrame."""

    @abstractmethod
    def stream(self) -> LazyChunkStream:
        """A lazy stream of the chunks of the recording."""

    def values(self) -> LazyChunkStream:
        """A lazy stream of the values for frames, by default :meth:`stream`."""
        return self.stream()

    def schema(self) -> Schema:
        """The timelines and components of :meth:`values`.

        These are the possible columns of a frame. Raises ``ReadError``.

        They come from the summary or footer of the file if it is complete; otherwise the recording is read.
        """
        from ..engine.stream import FrameRequest, value_columns

        return value_columns(self.values(), FrameRequest())[0]

    def frame(self, contents: Content | None = None, **choices: Unpack[FrameChoices]) -> pandas.DataFrame:
        """The recording's values as a pandas DataFrame, one row per message.

        ``frame(contents, …)`` is ``values().to_pandas(contents, …)`` with two differences: fields of structs become
        columns (``linear_acceleration.x``) unless ``flatten=False``, and for an MCAP the log time is the index. A local
        file of up to 512 MiB is read in this process, because that is faster than starting Spark, unless you set
        ``executor`` or ``CHUNKMILL_EXECUTOR``. Arguments and errors are those of :meth:`LazyChunkStream.to_arrow`.
        """
        choices.setdefault("flatten", True)
        choices.setdefault("index", self.frame_index)
        choices.setdefault("executor", self._quick_executor())
        return self.values().to_pandas(contents, **choices)

    def _quick_executor(self) -> str | None:
        """The quickest executor: this process for a local file, unless the file is large or an executor is named."""
        path = getattr(self, "path", None)
        if "CHUNKMILL_EXECUTOR" in os.environ or not isinstance(path, Path):
            return None
        sizes = (file.stat().st_size for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file())
        return "inline" if sum(sizes) <= _SMALL_BYTES else None


@dataclass(frozen=True)
class RecordingFile(FrameReader):
    """One file or folder of a format at ``path``. The other fields are options. The constructor reads nothing."""

    path: Location

    episode_option: ClassVar[str] = "episode"
    """The option that selects one of :meth:`episodes`, by number."""

    marker_suffices: ClassVar[bool] = True
    """Whether a folder with the marker of its format is one input."""

    lands_whole: ClassVar[bool] = False
    """Whether an ingestion treats a folder of the format as one input."""

    @classmethod
    def is_one_input(cls, folder: Location, marker: str) -> bool:
        """Return True for a folder, or an object store prefix, with a file that matches the marker."""
        if isinstance(folder, Path):
            return any(file.is_file() for file in folder.glob(marker))
        from ..engine.execution import Folder

        pattern = PurePosixPath(marker)
        place = folder / str(pattern.parent) if len(pattern.parts) > 1 else folder
        return any(fnmatch(name, pattern.name) for name in Folder.at(place).names())

    @classmethod
    def options(cls) -> tuple[Option, ...]:
        """The options of the format, in the order of the fields."""
        return _options(cls)

    @abstractmethod
    def stream(self) -> LazyChunkStream:
        """A lazy stream of the chunks of the recording, or of the first of several. Raises ``ReadError``."""

    def stores(self) -> list[tuple[StoreEntry | None, LazyChunkStream]]:
        """Return all recordings and blueprints in the file, each with its stream. The entry is None if it has no id."""
        return [(None, self.stream())]

    def episodes(self) -> Sequence[Episode]:
        """The recordings of a folder, which are separate inputs; empty if a file is one input."""
        return ()

    def stamp(self) -> tuple[int, int]:
        """The size in bytes and the modification time in ns of the file or the episode.

        They change with the content.
        """
        return self.size(), 0

    def report(self) -> FileReport:
        """The report of ``chunkmill inspect``. By default all chunks are read. Raises ``ReadError``."""
        from ..engine.stream import single_tasks
        from .inspection import FileReport, summarise_store

        chunks = (chunk for task in single_tasks(self.stream()) for chunk in task.run(0))
        store = summarise_store("recording", None, None, ((chunk.header, None) for chunk in chunks))
        return FileReport(str(self.path), self.size(), (store,))

    def orders(self) -> tuple[OrderReport, ...]:
        """Read all chunks, and return the entities with rows out of time order.

        Raises ``ReadError``.
        """
        from ..engine.stream import single_tasks
        from .inspection import Orders

        reports: list[OrderReport] = []
        for store, stream in self.stores():
            orders = Orders()
            for task in single_tasks(stream):
                for chunk in task.run(0):
                    orders.add(chunk)
            reports += orders.reports(None if store is None else store.recording_id)
        return tuple(reports)

    def verify(self) -> Verification:
        """Read and decode the whole file, and verify the checksums of its format.

        By default every chunk of every task is decoded. An error in a task becomes a fault of the result, and the other
        tasks are still read. Raises ``SourceMissingError`` if there is no file.
        """
        from ..engine.rrd import Findings
        from ..engine.stream import single_tasks

        findings = Findings()
        with findings.noting():
            for _, stream in self.stores():
                for task in single_tasks(stream):
                    with findings.noting():
                        for chunk in task.run(0):
                            findings.count(rows=chunk.data.num_rows)
        return findings.verification()

    def size(self) -> int:
        """The size of the file, in bytes."""
        with self.open() as file:
            return file.seek(0, 2)

    def open(self) -> BinaryIO:
        """Open the local file or the object to read its bytes."""
        if isinstance(self.path, Path):
            return self.path.open("rb")
        from ..engine.storage import RemoteFile

        return BufferedReader(RemoteFile(self.path))

    def places(self) -> Iterator[Location]:
        """Yield every path that reading may open, without following links: the file, or the folder with its content.

        A server refuses an input with a path outside its allowed folders.
        """
        yield self.path
        seen: set[str] = set()
        for here, folders, names in os.walk(self.path, followlinks=True) if isinstance(self.path, Path) else ():
            yield from (Path(here, name) for name in (*folders, *names))
            real = {os.path.realpath(f"{here}/{name}"): name for name in folders}  # links may form a circle
            folders[:] = [real[place] for place in real.keys() - seen]
            seen |= real.keys()

    def given(self) -> dict[str, Any]:
        """The options that differ from their defaults, by name."""
        values = ((o.name, getattr(self, o.name), o.default) for o in self.options())
        return {name: value for name, value, default in values if value != default}


@dataclass(frozen=True)
class FileSource(RecordingFile):
    """The base class for sources of one file. A simple format only implements :meth:`read`.

    Guarantee: the chunks of all splits, in the order of :meth:`splits` and within each split in the order of
    :meth:`read`, are the recording's chunks in order. They are the same for every run over the same bytes. It can be
    pickled, and is read in tasks.
    """

    def stream(self) -> LazyChunkStream:
        """A lazy stream of the chunks; each call reads the file again."""
        from ..engine.stream import LazyChunkStream

        return LazyChunkStream.from_source(replace(self, path=located(str(self.path))))

    def describe(self) -> str:
        """One line for the plan."""
        return f"{type(self).__name__}({self.path.name})"

    def paths(self) -> Sequence[str]:
        """The file that is read."""
        return [str(self.path)]

    def splits(self) -> Sequence[Split]:
        """Divide the file into parts that tasks read independently.

        By default it is one part, the whole file. Runs on the driver.
        """
        from ..engine.stream import Split

        return [Split(self.path.name, self.size())]

    @abstractmethod
    def read(self, split: Split) -> Iterator[Chunk]:
        """The chunks of one split, in order. This runs in a task. Raises ``ReadError``."""


@lru_cache(maxsize=64)
def _options(kind: type[RecordingFile]) -> tuple[Option, ...]:
    options = ((f, f.metadata.get(_METADATA)) for f in fields(kind))
    return tuple(
        replace(option, name=f.name, default=f.default)
        for f, option in options
        if option is not None and f.default is not MISSING
    )


@runtime_checkable
class StreamingReader(Protocol):
    """A reader of chunks in sequence."""

    def stream(self) -> LazyChunkStream:
        """A lazy stream over all chunks of this source. Nothing is read before the stream runs."""
        ...


@runtime_checkable
class IndexedReader(StreamingReader, Protocol):
    """A reader of a format with an index. Besides streaming, it can open single chunks on demand."""

    def store(self) -> LazyStore:
        """A lazy store over this source. The index is read immediately, chunks on use."""
        ...
