"""Who holds the lease on a store, as its file says."""

from __future__ import annotations

import getpass
import json
import math
import os
import secrets
import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from ..execution.processes import is_gone, pid_namespace, this_process

FORMAT: Final = 1
LONGEST_TTL: Final = 600.0


@dataclass(frozen=True, slots=True)
class Holder:
    """A holder of a lease. Times are in seconds since the epoch, by the clock of ``host``.

    ``holder`` says what it does, such as ``ingest``; ``started`` and ``namespace`` tell process ``pid`` from others
    with that number; ``released`` is None for as long as the lease is held.
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
        """This process, as a holder from now on."""
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
        """The holder that a lease's file names. Raises ``ValueError`` or ``TypeError`` where it names none."""
        fields = json.loads(data)
        if not isinstance(fields, dict) or fields.pop("format", None) != FORMAT:
            raise ValueError("not a lease of a known format")
        found = cls(**fields)
        found._validate()
        return found

    def _validate(self) -> None:
        times: list[Any] = [self.taken, self.renewed, self.ttl, *([] if self.released is None else [self.released])]
        texts: list[Any] = [self.holder, self.host, self.user, self.token]
        if not all(isinstance(text, str) for text in texts) or not isinstance(self.pid, int):
            raise TypeError("a lease's holder has a name, a host, a user, a process and a token")
        if not all(isinstance(t, int | float) and math.isfinite(t) for t in times) or self.ttl <= 0:
            raise ValueError("a lease's times are numbers")

    def to_bytes(self) -> bytes:
        """The content of the lease's file."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1).encode()

    def renew(self) -> Holder:
        """The same, renewed now."""
        return replace(self, renewed=time.time())

    def release(self) -> Holder:
        """The same, done now."""
        return replace(self, released=time.time())

    @property
    def is_released(self) -> bool:
        """Whether it has said itself that it is done."""
        return self.released is not None

    @property
    def is_here(self) -> bool:
        """Whether it is a process of this host, which can be seen from here."""
        return self.host == this_process()["host"] and self.namespace == pid_namespace()

    @property
    def is_dead(self) -> bool:
        """Whether its process is known to be dead; nothing is known of one on another host."""
        try:
            return is_gone(asdict(self))
        except ValueError:
            return False

    @property
    def patience(self) -> float:
        """For how many seconds it may stay silent before it counts as dead."""
        return min(self.ttl, LONGEST_TTL)

    def __str__(self) -> str:
        """Who it is and since when.

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
    except (KeyError, OSError):  # a container's user that has no name
        return str(os.getuid())
