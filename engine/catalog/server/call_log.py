"""The logs of calls: lines of JSON in rotated files, or on a stream.

The audit log has a line for each call that writes, with its changes, and for each refused call; the access log has a
line for each call. Lines contain no tokens and no content, but the name of a call's entry, and the names and places of
changed items. Parts of URLs that may be secret are left out. A line is written as a whole or not at all.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from ...errors import UsageError
from ...limits import MIB
from ...locations import located
from ..entry_log import SECRETS
from .protocol import CallRecord, ProtocolError, Status
from .tokens import Caller

LOG: Final = logging.getLogger(__name__)

STREAMS: Final = ("stdout", "stderr")
"""The names of streams that can replace a file."""
MOST_BYTES: Final = 64 * MIB
"""The default size limit of a log file in bytes. A file that would exceed it is renamed, and a new one begins."""
MOST_FILES: Final = 10
"""The default number of files of a log that are kept, including the current one."""
_AUDIT: Final = "audit.jsonl"
_REFUSED: Final = "refused"
_MOST_WAITING: Final = 1000
_LOOK_BACK: Final = 64 * 1024
_REFUSALS: Final = (Status.UNAUTHENTICATED, Status.PERMISSION_DENIED)

_TOKEN: Final = re.compile(r"eyJ[\w-]{8,}\.[\w.-]+|(?i:bearer)\s+\S+", re.ASCII)
_USER: Final = re.compile(r"(?<=://)[^/?#\s]*@")
_QUERY: Final = re.compile(r"(://[^?#\s]*)[?#].*", re.DOTALL)
_HIDDEN: Final = "(hidden)"


def without_secrets(value: Any) -> Any:
    """Return JSON data without tokens, and without users and queries in URLs.

    >>> without_secrets({"url": "https://me:word@host/a.rrd?X-Amz-Signature=1f"})
    {'url': 'https://host/a.rrd'}
    """
    if isinstance(value, str):
        return _TOKEN.sub(_HIDDEN, _QUERY.sub(r"\1", _USER.sub("", value)))
    if isinstance(value, Mapping):
        return {without_secrets(str(key)): without_secrets(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(item) for item in value]
    return value


class LogFile:
    """Appends lines to a file, or to a stream. Any number of threads and processes may write to the same file.

    A file that would exceed ``most_bytes`` is renamed to ``NAME.1``, the earlier ``NAME.1`` to ``NAME.2``, and so on,
    up to ``most_files`` files.
    """

    def __init__(self, place: Path | str, most_bytes: int = MOST_BYTES, most_files: int = MOST_FILES) -> None:
        self.place = place
        self._most_bytes = most_bytes
        self._most_files = most_files
        self._lock = threading.Lock()
        self._handle: int | None = None
        if isinstance(place, Path):
            with self._lock, self._alone():
                self._opened(place)

    def append(self, line: bytes, *, durable: bool = False) -> None:
        """Append a line, with ``durable`` synced to the disk. If it raises ``OSError``, nothing was written."""
        with self._lock:
            if not isinstance(self.place, Path):
                stream = sys.stdout if self.place == "stdout" else sys.stderr
                stream.flush()
                _write_all(stream.fileno(), line)
                return
            with self._alone():
                handle = self._opened(self.place)
                if os.fstat(handle).st_size + len(line) > self._most_bytes and os.fstat(handle).st_size:
                    handle = self._rotated(self.place)
                size = os.fstat(handle).st_size
                try:
                    _write_all(handle, line)
                    if durable:
                        os.fdatasync(handle)
                except OSError:
                    os.ftruncate(handle, size)
                    raise

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """A block in which no other process writes."""
        with open(f"{self.place}.lock", "ab") as file:  # noqa: PTH123 (its name may be of any bytes)
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _opened(self, place: Path) -> int:
        """The handle of the current file, even if another process has rotated it. Removes an incomplete last line."""
        if self._handle is not None:
            try:
                is_same = os.path.samestat(os.fstat(self._handle), place.stat())
            except FileNotFoundError:
                is_same = False
            if not is_same:
                self._close()
        if self._handle is None:
            self._handle = os.open(place, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _cut_half_line(self._handle)
        return self._handle

    def _rotated(self, place: Path) -> int:
        self._close()
        for number in range(self._most_files - 1, 0, -1):
            source = place if number == 1 else place.with_name(f"{place.name}.{number - 1}")
            if source.exists():
                source.rename(place.with_name(f"{place.name}.{number}"))
        place.unlink(missing_ok=True)  # if only one file is kept
        return self._opened(place)

    def _close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __del__(self) -> None:
        self._close()


def _write_all(handle: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]


def _cut_half_line(handle: int) -> None:
    """Remove the incomplete last line of a killed process."""
    size = os.fstat(handle).st_size
    if not size or os.pread(handle, 1, size - 1) == b"\n":
        return
    end = size
    while end:
        begin = max(end - _LOOK_BACK, 0)
        at = os.pread(handle, end - begin, begin).rfind(b"\n")
        if at >= 0:
            os.ftruncate(handle, begin + at + 1)
            return
        end = begin
    os.ftruncate(handle, 0)


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The places of the logs of calls: paths, or the names in :data:`STREAMS`.

    If ``audit`` is None, the log is in the lake's own folder, or on stderr for a lake in an object store. If ``access``
    is None, there is no access log.
    """

    audit: str | None = None
    access: str | None = None
    most_bytes: int = MOST_BYTES
    most_files: int = MOST_FILES


class CallLogs:
    """The audit log, and the access log if there is one.

    While the audit log cannot be written, its lines wait in memory, and calls that write are refused. Lines of callers
    without a valid token go to a separate file, so that they cannot displace other lines.
    """

    def __init__(self, audit: LogFile, refused: LogFile | None = None, access: LogFile | None = None) -> None:
        self.audit = audit
        self._refused = refused or audit
        self._access = access
        self._waiting: deque[bytes] = deque()
        self._lock = threading.Lock()
        self._is_told = False

    @classmethod
    def of(cls, lake: str, options: LogOptions | None = None) -> CallLogs:
        """The logs of a lake; on stderr if its folder is not writable.

        Raises ``UsageError`` if a named file is not writable.
        """
        options = options or LogOptions()
        access = None if options.access is None else _opened(options.access, options)
        root = located(lake)
        if options.audit is not None:
            audit = _opened(options.audit, options)
        elif not isinstance(root, Path):
            audit = _opened("stderr", options)
        else:
            try:
                audit = _opened(str(root / SECRETS / _AUDIT), options)
            except UsageError as error:
                LOG.warning("the audit log goes to stderr: %s", error)
                audit = _opened("stderr", options)
        refused = None
        if isinstance(audit.place, Path):
            refused = _opened(f"{audit.place.with_suffix('')}-{_REFUSED}{audit.place.suffix}", options)
        return cls(audit, refused, access)

    def check_writable(self) -> None:
        """Write the waiting lines. Raises :class:`ProtocolError` if they cannot be written."""
        if not self._waiting:
            return
        with self._lock:
            if not self._flushed():
                raise ProtocolError(
                    Status.UNAVAILABLE, "the audit log cannot be written, so nothing is changed; try again later"
                )

    def note(
        self,
        method: str,
        caller: Caller,
        status: Status,
        record: CallRecord,
        *,
        client: str,
        seconds: float,
        writes: bool,
    ) -> None:
        """Log the end of a call."""
        is_refused = status in _REFUSALS or record.is_refused
        if not (writes or is_refused or self._access is not None):
            return
        fields: dict[str, Any] = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "client": client,
            "subject": caller.subject or None,
            "token": caller.token_id or None,
            "method": method,
            "entry": record.entry_id or None,
            "name": record.entry_name or None,
            "status": status.name,
            "seconds": round(seconds, 6),
        }
        if self._access is not None:
            try:
                self._access.append(_line(fields))
            except OSError as error:
                LOG.warning("the access log %s cannot be written: %s", self._access.place, error.strerror)
        if writes or is_refused:
            line = _line({**fields, "changed": record.changed} if record.changed else fields)
            self._audited(line, is_known=status is not Status.UNAUTHENTICATED, has_changed=bool(record.changed))

    def _audited(self, line: bytes, *, is_known: bool, has_changed: bool) -> None:
        if not is_known:
            try:
                self._refused.append(line)
            except OSError as error:
                LOG.warning("the log of refused calls %s cannot be written: %s", self._refused.place, error.strerror)
            return
        with self._lock:
            if has_changed or len(self._waiting) < _MOST_WAITING:
                self._waiting.append(line)
            self._flushed(durable=has_changed)

    def _flushed(self, *, durable: bool = True) -> bool:
        """Write the waiting lines in order; return whether all were written."""
        try:
            while self._waiting:
                self.audit.append(self._waiting[0], durable=durable)
                self._waiting.popleft()
        except OSError as error:
            if not self._is_told:
                LOG.error(
                    "the audit log %s cannot be written, and calls that write are refused: %s; the first line: %s",
                    self.audit.place,
                    error.strerror,
                    self._waiting[0].decode().strip(),
                )
            self._is_told = True
            return False
        if self._is_told:
            LOG.warning("the audit log %s can be written again", self.audit.place)
        self._is_told = False
        return True


def _opened(place: str, options: LogOptions) -> LogFile:
    """The log at a path, or on a stream. Raises ``UsageError`` if it cannot be written."""
    if place in STREAMS:
        return LogFile(place)
    path = Path(place)
    try:
        if not path.parent.exists():
            path.parent.parent.mkdir(parents=True, exist_ok=True)
            path.parent.mkdir(mode=0o700, exist_ok=True)
        return LogFile(path, options.most_bytes, options.most_files)
    except OSError as error:
        raise UsageError(
            f"the log of calls cannot be written: {error.strerror}",
            path=place,
            hint="Choose another file, or stderr, by --audit-log.",
        ) from error


def _line(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(without_secrets(fields), separators=(",", ":")).encode() + b"\n"
