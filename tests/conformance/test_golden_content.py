"""What recordings hold: as the reference found it, but for the documented differences."""

from __future__ import annotations

import json
import lzma
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from chunkmill.engine.errors import ReadError, ReadWarning
from golden_content import Difference, Documented, compared, content, documented
from places import DATA, REPOSITORY, WIDE_DATA, recordings

PAGE = REPOSITORY / "docs" / "differences.md"
TABLE = documented(PAGE)
GOLDEN: dict[str, Any] = json.loads(lzma.decompress((DATA / "golden" / "content_0.33.1.json.xz").read_bytes()))
"""By recording: what the reference answered, or the error that it ended with."""

PATHS = {param.id: param.values[0] for param in recordings("*.mcap", "*/**/*.*")}
PATHS["mcap/reductstore_agent__demo.mcap"] = PATHS["demo.mcap"]
FOUND: dict[str, list[Difference]] = {}


def differences(recording: str) -> Iterator[Difference]:
    """All differences of a recording, documented or not."""
    golden = GOLDEN[recording]
    failed = isinstance(golden, dict)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReadWarning)
            ours = content(PATHS[recording], () if failed else golden)
    except ReadError as error:
        if not failed:
            yield Difference(recording, "", "", "fails", str(error))
        return
    if failed:
        yield Difference(recording, "", "", "error", golden["error"])
        return
    yield from compared(recording, golden, ours)


def at_hand() -> list[Any]:
    wide = [pytest.mark.wide]
    return [pytest.param(n, marks=wide * PATHS[n].is_relative_to(WIDE_DATA)) for n in sorted(GOLDEN) if n in PATHS]


@pytest.mark.parametrize("recording", at_hand())
def test_a_recording_holds_what_the_reference_found(recording: str) -> None:
    FOUND[recording] = list(differences(recording))
    unknown = [d for d in FOUND[recording] if not any(row.covers(d) for row in TABLE)]
    assert not unknown, f"{PAGE.name} does not say why: {unknown}"


@pytest.mark.wide
def test_every_documented_difference_is_there() -> None:
    if missing := GOLDEN.keys() - PATHS.keys():
        pytest.skip(f"{len(missing)} recordings are not at hand, like {min(missing)}")
    for recording in GOLDEN.keys() - FOUND.keys():
        FOUND[recording] = list(differences(recording))
    seen = [difference for found in FOUND.values() for difference in found]
    stale: list[Documented] = [row for row in TABLE if not any(row.covers(d) for d in seen)]
    assert not stale
