"""McapReader: the public face of this package."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from ...engine.errors import SourceMissingError, UsageError
from ...engine.locations import Location, exists, located, reading_location
from .decoders import DECODERS
from .info import McapInfo
from .options import McapOptions
from .recovering import McapRecoveryReport
from .source import McapSource
from .split import checked_range

if TYPE_CHECKING:
    from ...engine.stream import LazyChunkStream


class McapReader:
    """Read chunks from an MCAP file.

    Every message becomes one row at the entity of its topic, on the timelines ``message_log_time`` and
    ``message_publish_time``. CRCs are checked; a damaged file raises ``ReadError`` while it is read. A file without
    index or summary is read like any other.

    Parameters
    ----------
    path
        The file, or the URL of an object (``s3://``, ``gs://``, ``abfs://``). It must exist; it is opened when the
        stream is pulled.
    timeline_type
        Whether times are wall-clock ``"timestamp"`` or ``"duration"``, both in ns; ``"timestamp_ns"`` and
        ``"duration_ns"`` mean the same.
    timestamp_offset_ns
        Added to every timestamp, saturating; without effect on durations.
    decoders
        Identifiers of the decoders to use, of :meth:`available_decoders`; all of them by default. ``ros2_reflection``
        gives messages of ROS 2 (CDR with ``ros2msg``, ``ros2idl`` or ``omgidl``) and ROS 1 as structs, ``protobuf``
        those of protobuf, FlatBuffers, and JSON and CBOR with or without a JSON Schema; ``raw`` takes the channels that
        no other decoder claims. A message, or a whole channel, that its decoder cannot read comes out raw, with a
        ``ReadWarning``.
    include_topic_regex
        Only topics in which one of these RE2 patterns is found are read. Not anchored.
    exclude_topic_regex
        Topics in which one of these is found are skipped; applied after the includes.
    start_time_ns, end_time_ns
        Only messages whose log time, in ns as the writer wrote it, is at or after the start and before the end are
        read. Chunks of the file that do not overlap are not decompressed. What is told of the file as a whole
        (statistics, schemas, metadata, attachments, robots) stays the same.
    recover
        Read what can be read of a cut or damaged file, in one split. What was lost is said in a ``ReadWarning`` when
        the stream ends, and by :meth:`recovery_report`.

    Raises
    ------
    FileNotFoundError
        There is no such file (``SourceMissingError``).
    ValueError
        A timeline type, decoder or pattern that does not exist, or a range of times that ends before it starts
        (``UsageError``).
    TypeError, OverflowError
        An offset or a time that is no integer, or does not fit into 64 bits.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        timeline_type: Literal["timestamp", "duration", "timestamp_ns", "duration_ns"] = "timestamp",
        timestamp_offset_ns: int | None = None,
        decoders: Iterable[str] | None = None,
        include_topic_regex: Iterable[str] | None = None,
        exclude_topic_regex: Iterable[str] | None = None,
        start_time_ns: int | None = None,
        end_time_ns: int | None = None,
        recover: bool = False,
    ) -> None:
        self._path = reading_location(path)
        self._options = McapOptions.checked(
            timeline_type,
            timestamp_offset_ns,
            decoders,
            include_topic_regex,
            exclude_topic_regex,
            start_time_ns,
            end_time_ns,
            recover,
        )
        if not exists(self._path):
            raise SourceMissingError("MCAP file not found", path=str(self._path))

    @property
    def path(self) -> Location:
        """The path of the file, or the URL of the object."""
        return self._path

    def __repr__(self) -> str:
        return f"McapReader({self._path})"

    @staticmethod
    def available_decoders() -> list[str]:
        """All decoder identifiers, sorted.

        >>> McapReader.available_decoders()[:3]
        ['attachments', 'foxglove', 'metadata']
        """
        return list(DECODERS)

    def source(self, *, start_time_ns: int | None = None, end_time_ns: int | None = None) -> McapSource:
        """The file as a source for a pipeline; times as for :meth:`stream`."""
        options = self._options
        if start_time_ns is not None or end_time_ns is not None:
            options = replace(options, times=checked_range(start_time_ns, end_time_ns))
        return McapSource(str(located(self._path)), options)

    def stream(self, *, start_time_ns: int | None = None, end_time_ns: int | None = None) -> LazyChunkStream:
        """A lazy stream of the file's chunks; each call reads the file anew.

        Where a start or an end is given, both take the place of the reader's own, for this stream alone.

        Order: what the summary tells of the file; messages as in the file by pieces of about 32 MiB, within these by
        channel, then by log time; what only reading tells of the file; robots. The same for every run, whatever the
        number of cores.
        """
        from ...engine.stream import LazyChunkStream

        source = self.source(start_time_ns=start_time_ns, end_time_ns=end_time_ns)
        return LazyChunkStream.from_source(source)

    def time_bounds(self) -> tuple[int, int]:
        """The first and the last log time of all messages, ns as the writer wrote them; see :meth:`info`.

        Raises ``UsageError`` (a ``ValueError``) where the file has no message.
        """
        info = self.source().info()
        if info.start_time is None or info.end_time is None:
            raise UsageError("the file has no message, and so no times", path=str(self._path))
        return info.start_time, info.end_time

    def recovery_report(self) -> McapRecoveryReport:
        """What can be recovered of a cut or damaged file, and what is lost. Reads all of it, and decodes nothing."""
        return self.source().recovery_report()

    def info(self, *, timing: bool = False) -> McapInfo:
        """What is in the file: channels, schemas, counts, times, compression. Messages are not decoded.

        With ``timing`` also the rate of each channel and its largest gap, for which the message indexes are read.
        """
        return self.source().info(timing=timing)
