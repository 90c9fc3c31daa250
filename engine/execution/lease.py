"""Leases: exclusive rights to a store, and to other resources in a folder.

::

    store/lease/00000007.json             who compacts or vacuums, since when, renewed when; the highest number holds it
    store/lease/<query>/00000007.json     who runs an ingestion query
    view.lance/_computed/lease/refresh/00000007.json    who refreshes a view

Commits need no lease.

A process takes a lease by creating the file of the next number, which only one of several can: by a local link, or by
putting an object on the condition that it does not exist. A store needs nothing else, so object stores give the same
guarantee as file systems. The holder rewrites its file every third of ``ttl_seconds``, and marks its end in the file. A
lease is taken over

- at once, if the holder released it, if this process knows that the holder gave it up, or if the holder's process is
  known to be dead (same host and process namespace);
- otherwise, if its file was not rewritten while it was watched for its ``ttl_seconds`` (only the watching process's
  clock counts), which is logged. This also holds on the same host, as a process may live without renewing: it may be
  stopped, or have failed to mark its end;
- if its file is not a valid lease, after it was watched in the same way.

All contents of the file have one size. If a disk has no space for a second file, the holder overwrites the first, so it
can renew and release its lease on a full disk. If that fails too, the holder counts as done in its process, and keeps
trying.

A lease keeps two processes from doing the same work, and names the holder to the second process. It does not protect
the data, as a process can be suspended between :meth:`Lease.check` and its next step. The order of versions does that.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import logging
import math
import os
import re
import secrets
import threading
import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from .. import faults
from ..errors import ReadError, SourceMissingError, WriteError, is_full, writing
from ..locations import Location
from ..storage.folder import Folder, LocalFolder
from .commit import is_gone, pid_namespace, this_process

FORMAT: Final = 1
LONGEST_TTL: Final = 600.0


@dataclass(frozen=True, slots=True)
class Holder:
    """A holder of a lease. Times are in seconds since the epoch, by the clock of ``host``.

    ``holder`` names its work, such as ``ingest``. ``started`` and ``namespace`` distinguish process ``pid`` from others
    with that number. ``released`` is None while the lease is held.
    """

    holder: str
    host: str
    user: str
    pid: int
    started: str | None
    namespace: str | None
    token: str
    taken: float
    renewed: float
    ttl: float
    released: float | None = None

    @classmethod
    def here(cls, holder: str, ttl_seconds: float) -> Holder:
        """Return this process as a holder from now on."""
        now = time.time()
        return cls(
            holder=holder,
            **this_process(),
            user=_user(),
            namespace=pid_namespace(),
            token=secrets.token_hex(16),
            taken=now,
            renewed=now,
            ttl=ttl_seconds,
        )

    @classmethod
    def parse(cls, data: bytes) -> Holder:
        """Parse the file of a lease. Raises ``ValueError`` or ``TypeError`` if it names no holder."""
        fields = json.loads(data)
        if not isinstance(fields, dict) or fields.pop("format", None) != FORMAT:
            raise ValueError("not a lease of a known format")
        holder = cls(**fields)
        holder._validate()
        return holder

    def _validate(self) -> None:
        times: list[Any] = [self.taken, self.renewed, self.ttl, *([] if self.released is None else [self.released])]
        texts: list[Any] = [self.holder, self.host, self.user, self.token]
        if not all(isinstance(text, str) for text in texts) or not isinstance(self.pid, int):
            raise TypeError("the holder's name, host, user, process or token has a wrong type")
        if not all(isinstance(t, int | float) and math.isfinite(t) for t in times) or self.ttl <= 0:
            raise ValueError("a time of the lease is not a valid number")

    def to_bytes(self) -> bytes:
        """The content of the lease's file: JSON, padded to a fixed size."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1).encode().ljust(_SIZE)

    def renew(self) -> Holder:
        """Return the holder, renewed now."""
        return replace(self, renewed=time.time())

    def release(self) -> Holder:
        """Return the holder, released now."""
        return replace(self, released=time.time())

    @property
    def is_released(self) -> bool:
        """Return True if the holder has released the lease."""
        return self.released is not None

    @property
    def is_here(self) -> bool:
        """Return True if the holder is a visible process of this host."""
        return self.host == this_process()["host"] and self.namespace == pid_namespace()

    @property
    def is_dead(self) -> bool:
        """Return True if the process is known to be dead, which it never is on another host."""
        try:
            return is_gone(asdict(self))
        except ValueError:
            return False

    @property
    def is_heard(self) -> bool:
        """Return True if the holder is on this host and was renewed in time, so that it is alive."""
        return self.is_here and abs(time.time() - self.renewed) < self.patience

    @property
    def patience(self) -> float:
        """The seconds without renewal after which the holder counts as dead."""
        return min(self.ttl, LONGEST_TTL)

    def __str__(self) -> str:
        """The holder as text, and the time since which it holds the lease.

        >>> print(Holder("ingest", "robot7", "ada", 812, None, None, "", 1_700_000_000.0, 1_700_000_020.0, 30.0))
        ingest (process 812 of ada on robot7, since 2023-11-14T22:13:20Z)
        """
        return f"{self.holder} (process {self.pid} of {self.user} on {self.host}, since {_utc(self.taken)})"


def _utc(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return "an unknown time"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return str(os.getuid())


FOLDER: Final = "lease"
_NAME: Final = re.compile(r"(\d{8,})\.json")
_KEPT: Final = 8
"""The number of earlier files to keep: even a listing during concurrent changes then shows one of them."""
_ATTEMPTS: Final = 100
_PATIENCE: Final = 30.0
_TURN: Final = 0.05
_SIZE: Final = 1024
_AGAIN: Final = 1.0
"""The longest time before the first retry of a failed release, in seconds."""
_LONGEST_PAUSE: Final = 30.0
_given_up: Final = set[str]()
"""The tokens of leases that this process gave up, although their files may not show it yet."""
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

logger = logging.getLogger("chunkmill.lease")


class _LeaseFile(NamedTuple):
    number: int
    data: bytes
    holder: Holder | None

    @property
    def is_free(self) -> bool:
        """Whether the lease may be taken over at once."""
        holder = self.holder
        return holder is not None and (holder.is_released or holder.token in _given_up or holder.is_dead)

    @property
    def patience(self) -> float:
        return _PATIENCE if self.holder is None else self.holder.patience


class Lease:
    """The exclusive right to maintain a store or run a query, while it is renewed. A context manager releases it."""

    def __init__(self, home: Location, number: int, holder: Holder, name: str = "") -> None:
        self.home = home
        self.number = number
        self.holder = holder
        self._folder = _folder(home, name)
        self._renewed_at = _now()
        self._lost: str | None = None
        self._turn = threading.Lock()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="chunkmill-lease", daemon=True)
        self._thread.start()

    @classmethod
    def take(
        cls,
        home: Location,
        holder: str = "ingest",
        *,
        name: str = "",
        ttl_seconds: float = 30.0,
        wait: bool = True,
        queue: bool = False,
    ) -> Lease:
        """Take a lease on the store ``home``. ``holder`` is a word for the work, such as ``ingest``.

        ``name`` is the name of an ingestion query; the default is the lease for maintenance. If the holder is on
        another host, or was not renewed in time, this waits up to its ttl to see whether it is alive; with
        ``wait=False`` such a holder counts as alive. With ``queue=True``, this also waits for a live holder to finish.
        Otherwise a live holder raises a transient ``WriteError`` that names it. Raises another error if the folder
        cannot be written.
        """
        if ttl_seconds <= 0:
            raise ValueError(f"a lease must last longer than {ttl_seconds} seconds")
        folder = _folder(home, name)
        with writing(str(home)):
            folder.make()
        for _ in range(_ATTEMPTS):
            before = _newest(folder, home)
            if before is not None:
                before = _waited_for_end(folder, home, before, wait=wait, queue=queue)
            number = 1 if before is None else before.number + 1
            mine = Holder.here(holder, ttl_seconds)
            try:
                if not _create(folder, home, number, mine):
                    continue
                lease = cls(home, number, mine, name)
            except BaseException:  # the file may exist
                _give_up(folder, number, mine)
                raise
            try:
                faults.reach("lease.take")
                _tidy(folder, home, number)
            except BaseException:
                lease.release()
                raise
            return lease
        raise WriteError("other processes keep taking the lease on this store", path=str(home), transient=True)

    def check(self) -> None:
        """Raise a transient ``WriteError`` if another process has the lease, or if this cannot be excluded.

        If this process paused for longer than the lease lasts (a suspended machine), the lease is renewed now, unless
        another process has it.
        """
        with self._turn:
            if self._lost is None and _now() - self._renewed_at > self.holder.ttl:
                self._renew()
            elif self._lost is None:
                self._look()
            if self._lost is not None:
                raise WriteError(
                    f"the lease on this store was lost: {self._lost}",
                    path=str(self.home),
                    hint="Nothing more is written; try again when the other process is done.",
                    transient=True,
                )

    def release(self) -> None:
        """Release the lease. Does nothing if it was lost or already released.

        If its file cannot be written, the lease is free for this process at once. For other processes it is free after
        a successful retry in the background, or after they have waited for ``ttl_seconds``.
        """
        self._done.set()
        self._thread.join()
        with self._turn:
            if self._lost is None and (error := self._release_failure()) is not None:
                _given_up.add(self.holder.token)
                logger.warning("the lease was not released; retrying: %s", error)
                with contextlib.suppress(RuntimeError):  # no thread can start at the end of a process
                    threading.Thread(target=self._release_later, name="chunkmill-lease", daemon=True).start()
            self._lost = self._lost or "it was released"

    def _release_failure(self) -> WriteError | None:
        """Mark the lease as released, unless another process holds it; return the error that prevented it."""
        try:
            self._look()
            if self._lost is None:
                self._write(self.holder.release())
        except WriteError as error:
            return error
        return None

    def _release_later(self) -> None:
        pause = min(self.holder.ttl / 3, _AGAIN)
        while True:
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            with self._turn:
                self._lost = None
                is_done = self._release_failure() is None
                self._lost = self._lost or "it was released"
            if is_done:
                _given_up.discard(self.holder.token)
                return

    def _keep(self) -> None:
        while not self._done.wait(self.holder.ttl / 3):
            with self._turn:
                try:
                    self._renew()
                except WriteError as error:
                    logger.warning("the lease could not be renewed: %s", error)
            if self._lost is not None:
                return

    def _renew(self) -> None:
        self._look()
        if self._lost is None:
            self._write(self.holder.renew())
            self._look()

    def _look(self) -> None:
        """Check whether another process has taken the lease."""
        newest = _newest(self._folder, self.home)
        if newest is None:
            self._lost = "its file was removed"
        elif newest.holder is None or newest.holder.token != self.holder.token:
            self._lost = f"it was taken over by {newest.holder or 'a process that is not known'}"

    def _write(self, holder: Holder) -> None:
        began = _now()
        with writing(str(self.home)):
            _replace(self._folder, _name(self.number), holder.to_bytes())
        self.holder = holder
        self._renewed_at = began

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def lease_holder(home: Location, name: str = "") -> Holder | None:
    """Return the live holder of a lease, or None, without changes. A holder counts as live unless known to be dead.

    For a holder on another host, this is not known: see ``renewed``.
    """
    newest = _newest(_folder(home, name), home)
    return None if newest is None or newest.is_free else newest.holder


def _folder(home: Location, name: str) -> Folder:
    return Folder.at(home / FOLDER / name if name else home / FOLDER)


def _now() -> float:
    """Return the time of a clock that cannot be set, and that runs while the machine is suspended."""
    return time.clock_gettime(_CLOCK)


def _name(number: int) -> str:
    return f"{number:08d}.json"


def _numbers(folder: Folder, home: Location) -> list[int]:
    try:
        with writing(str(home)):
            return sorted(int(m[1]) for m in map(_NAME.fullmatch, folder.names()) if m)
    except SourceMissingError:
        return []
    except WriteError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return []
        raise
    except ReadError as error:
        raise _unsure(home, error) from error


def _newest(folder: Folder, home: Location) -> _LeaseFile | None:
    """The file with the highest number, or None."""
    for _ in range(_ATTEMPTS):
        numbers = _numbers(folder, home)
        if not numbers:
            return None
        try:
            data = folder.get(_name(numbers[-1]))
        except (FileNotFoundError, SourceMissingError):
            continue  # removed meanwhile, as there is a higher number
        except (OSError, ReadError) as error:
            raise _unsure(home, error) from error
        try:
            return _LeaseFile(numbers[-1], data, Holder.parse(data))
        except (ValueError, TypeError, RecursionError):
            return _LeaseFile(numbers[-1], data, None)
    raise WriteError("other processes keep taking the lease on this store", path=str(home), transient=True)


def _unsure(home: Location, error: Exception) -> WriteError:
    return WriteError(f"the process that holds the lease cannot be determined: {error}", path=str(home), transient=True)


def _waited_for_end(folder: Folder, home: Location, first: _LeaseFile, *, wait: bool, queue: bool) -> _LeaseFile | None:
    """Wait until a lease may be taken over, and return its newest file; with ``queue``, wait without a limit.

    Raises ``WriteError`` if this need not wait for the holder. Time during which this process or its host was stopped
    does not count as the holder's silence, as the holder may have been stopped, too.
    """
    seen, silent, now = first, 0.0, first
    while not now.is_free:
        is_here = now.holder is not None and now.holder.is_here
        if not queue and (not wait or now.data != seen.data or (now.holder is not None and now.holder.is_heard)):
            raise _refusal(home, now.holder)
        if now.data != seen.data:
            seen, silent = now, 0.0
        if silent >= now.patience:
            logger.warning("%s: %s has not renewed its lease for %.0f s", home, now.holder or "a writer", now.patience)
            return now
        if now is first and not queue:
            text = "%s: waiting up to %.0f s to see whether %s is alive"
            logger.warning(text, home, now.patience, now.holder or "a writer")
        elif now is first:
            logger.info("%s: waiting for %s", home, now.holder or "a writer")
        pause = min(now.patience / 20, _TURN if is_here else 1.0)
        time.sleep(pause)
        silent += pause
        after = _newest(folder, home)
        if after is None:
            return None
        now = after
    return now


def _refusal(home: Location, holder: Holder | None) -> WriteError:
    hint = "Wait until it is done, or end it, or choose another destination."
    if holder is not None and holder.is_here and holder.pid == os.getpid():
        raise WriteError(
            f"this process is already writing here: {holder}",
            path=str(home),
            hint="Wait until its other call is done, or choose another destination.",
            transient=True,
        )
    if holder is not None and holder.is_here:
        hint = f"Wait until it is done, or end it (kill {holder.pid}), or choose another destination."
    return WriteError(
        f"another process is writing here: {holder or 'it is unknown which'}",
        path=str(home),
        hint=hint,
        transient=True,
    )


def _create(folder: Folder, home: Location, number: int, holder: Holder) -> bool:
    """Create the file of a number, and check that there is no higher one; return whether that succeeded."""
    name = _name(number)
    try:
        with writing(str(home)):
            created = folder.create(name, holder.to_bytes())
    except WriteError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return False  # the winner cleaned up meanwhile
        raise
    except SourceMissingError:
        return False
    if created and _numbers(folder, home)[-1:] != [number]:
        with writing(str(home)):
            folder.delete([name])
        return False
    return created


def _tidy(folder: Folder, home: Location, number: int) -> None:
    """Remove files that holder ``number`` does not need: much older numbers, and drafts of dead processes."""
    old = [_name(n) for n in _numbers(folder, home) if n < number - _KEPT]
    with writing(str(home)):
        folder.delete([*old, *(name for name in folder.names() if not _NAME.fullmatch(name))])


def _give_up(folder: Folder, number: int, holder: Holder) -> None:
    """Try to release a lease whose file may exist."""
    _given_up.add(holder.token)
    with contextlib.suppress(OSError, ValueError, TypeError, ReadError, WriteError):
        if Holder.parse(folder.get(_name(number))).token == holder.token:
            _replace(folder, _name(number), holder.release().to_bytes())


def _replace(folder: Folder, name: str, data: bytes) -> None:
    """Replace a file, so that readers see either the old or the new one.

    Without space for a second file, the old one is overwritten in place.
    """
    if not isinstance(folder, LocalFolder):
        folder.put(name, data)
        return
    draft = folder.location / f"{name}.open"
    try:
        draft.write_bytes(data)
        draft.rename(folder.location / name)
    except OSError as error:
        draft.unlink(missing_ok=True)
        if not is_full(error):
            raise
        with (folder.location / name).open("r+b", buffering=0) as file:
            os.pwrite(file.fileno(), data[-1:], len(data) - 1)  # raises if a limit would truncate the file
            file.write(data)
            file.truncate()
    except BaseException:  # a signal may arrive at any point
        draft.unlink(missing_ok=True)
        raise
