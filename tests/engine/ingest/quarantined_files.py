"""Files that failed, and the table that holds them."""

from __future__ import annotations

from pathlib import Path

import lance
from chunkmill.engine.errors import ReadError
from chunkmill.engine.ingest import FileResult, LandedFile, Outcome
from chunkmill.engine.ingest.quarantine import FileQuarantine


def failed(path: str, message: str = "the magic is missing", *, offset: int | None = 8, size: int = 10) -> FileResult:
    error = ReadError(message, path=path, offset=offset, hint="Land it again.")
    return FileResult(
        LandedFile(path, size, 1_700_000_000_123_456_789), Outcome.QUARANTINED, "d1", error=error.to_dict()
    )


def table_of(home: Path) -> Path:
    return home / "quarantine" / "table.lance"


def version(home: Path) -> int:
    return lance.dataset(str(table_of(home))).version


def tries(quarantine: FileQuarantine) -> dict[str, int]:
    return {file.path: file.tries for file in quarantine.rows()}
