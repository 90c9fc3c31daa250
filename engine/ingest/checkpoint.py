"""The checkpoint of an ingestion: its identity, its source, and a check that it is whole."""

from __future__ import annotations

import json
import re
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from ..errors import ReadError, SourceMissingError, UsageError, writing
from ..execution import Folder
from ..locations import Location

_FILE: Final = "ingest.json"
_FORMAT: Final = 1
_QUERY_ID: Final = re.compile(r"[0-9A-Za-z_-]{1,64}")
_LOGS: Final = ("offsets", "commits")


@dataclass(frozen=True, slots=True)
class IngestIdentity:
    """The identity of an ingestion, from its first start on. ``created`` is in seconds since the epoch."""

    query_id: str
    source: str
    created: float


class Checkpoint:
    """The folder of a checkpoint."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self._folder = Folder.at(location)

    @property
    def landing(self) -> Location:
        """The folder of the landing log."""
        return self.location / "landing"

    @property
    def spark(self) -> Location:
        """The folder of Spark's own checkpoint."""
        return self.location / "spark"

    def identity(self) -> IngestIdentity | None:
        """The identity of the ingestion; None before its first start. Raises ``ReadError``."""
        if not self._folder.exists(_FILE):
            return None
        try:
            data = json.loads(self._folder.get(_FILE))
            if data.pop("format") != _FORMAT:
                raise ValueError("its format is unknown")
            identity = IngestIdentity(**data)
            if not _QUERY_ID.fullmatch(identity.query_id):  # it names a file of the store
                raise ValueError(f"{identity.query_id!r} is not the id of a query")
            if not isinstance(identity.source, str) or not isinstance(identity.created, int | float):
                raise TypeError("it lacks a landing folder or a start time")
            return identity
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ReadError(
                f"the checkpoint is damaged: {error}",
                path=self._folder.place(_FILE),
                hint="Restore it from a copy; or remove the whole checkpoint and start again: files whose content is "
                "in the store are not ingested twice.",
            ) from error

    def check(self, source: Location) -> IngestIdentity | None:
        """The identity of the ingestion; None before its first start. Raises ``UsageError`` for another source."""
        identity = self.identity()
        if identity is not None and identity.source != str(source):
            raise UsageError(
                f"this checkpoint belongs to the landing folder {identity.source}, not to {source}",
                path=str(self.location),
                hint="Give each landing folder its own checkpoint (--checkpoint). Several can ingest into one store at "
                "the same time.",
            )
        return identity

    def begin(self, source: Location) -> IngestIdentity:
        """The identity of the ingestion, made at its first start. Raises ``UsageError`` for another source."""
        with writing(str(self.location)):
            self._folder.make()
        identity = self.check(source)
        if identity is None:
            made = IngestIdentity(uuid.uuid4().hex, str(source), time.time())
            with writing(str(self.location)):
                self._folder.create(_FILE, json.dumps({"format": _FORMAT, **asdict(made)}).encode())
            identity = self.check(source)  # if another process was first
            assert identity is not None
        return identity

    def check_spark(self) -> None:
        """Raise ``ReadError`` if a file of Spark's checkpoint is torn, as Spark's own error is obscure.

        Drafts that a killed JVM left in it and checksums of missing files are removed.
        """
        if not isinstance(self.spark, Path):
            return
        with writing(str(self.spark)):
            for path in list(self.spark.rglob(".*")):
                is_draft = ".tmp" in path.name and path.is_file()
                if is_draft or (path.suffix == ".crc" and not path.with_name(path.name[1:-4]).exists()):
                    path.unlink(missing_ok=True)
        for log in _LOGS:
            files = [p for p in (self.spark / log).glob("*") if p.name.isdigit()]
            for path in sorted(files, key=lambda p: int(p.name))[-2:]:
                text = path.read_bytes()
                lines = text.split(b"\n")
                whole = lines[0].startswith(b"v") and len(lines) >= (3 if log == "offsets" else 2) and lines[-1]
                if not whole:
                    raise self.torn(path)

    def has_noted_all(self) -> bool:
        """Return whether Spark has marked each batch that it began as done; True if that is not visible."""
        if not isinstance(self.spark, Path):
            return True
        begun, done = (max((int(p.name) for p in (self.spark / log).glob("[0-9]*")), default=-1) for log in _LOGS)
        return done >= begun

    def torn(self, path: Path) -> ReadError:
        """The error of a torn file of Spark's checkpoint."""
        return ReadError(
            f"the checkpoint is damaged: Spark's file {path.name} of {path.parent.name} is incomplete, with "
            f"{path.stat().st_size} bytes",
            path=str(path),
            hint=f"Remove the folder {self.spark} and start again. Nothing is lost or ingested twice: the store and "
            "the landing log have the finished batches.",
        )


HIDDEN_HOME: Final = ".chunkmill"
"""The folder, within a folder of RRDs, that is the home of the ingestion."""

_SIGNS: Final = ("versions", "quarantine", "lease")


def home_of(location: Location) -> Location:
    """The folder with the state of the ingestion into a store of recordings, or into a folder of RRDs.

    Raises ``SourceMissingError`` if nothing was ingested there.
    """
    for home in (location, location / HIDDEN_HOME):
        if any(Folder.at(home / sign).exists() for sign in _SIGNS):
            return home
    raise SourceMissingError(
        "there is neither a store of recordings nor a folder of ingested RRDs",
        path=str(location),
        hint="Give the destination of `chunkmill ingest` (--into or --rrds).",
    )
