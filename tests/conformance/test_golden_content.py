"""What recordings hold: as the reference found it, but for the documented differences."""

from __future__ import annotations

import json
import lzma
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine.errors import ReadError, ReadWarning
from golden_content import Difference, Documented, compared, content, documented
from places import DATA, WIDE_DATA, recordings

PAGE = Path(__file__).with_name("differences_by_recording.md")
OLDEST, NEWEST = "0.33.1", "0.41.0"
TABLE = documented(PAGE, OLDEST)
NEWEST_TABLE = documented(PAGE, "0.41")
TABLES = {OLDEST: TABLE, NEWEST: TABLE + NEWEST_TABLE}
"""By version of the reference: the rows that may cover its differences."""


def _golden(version: str) -> Any:
    return json.loads(lzma.decompress((DATA / "golden" / f"content_{version}.json.xz").read_bytes()))


GOLDEN: dict[str, dict[str, Any]] = {version: _golden(version) for version in TABLES}
"""By version and recording: what the reference answered, or the error that it ended with. Of the newer version only the
recordings that it reads otherwise."""

PATHS = {param.id: param.values[0] for param in recordings("*.mcap", "*/**/*.*")}
PATHS["mcap/reductstore_agent__demo.mcap"] = PATHS["demo.mcap"]
FOUND: dict[tuple[str, str], list[Difference]] = {}


def differences(version: str, recording: str) -> Iterator[Difference]:
    """All differences of a recording, documented or not."""
    golden = GOLDEN[version][recording]
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
    return [
        pytest.param(version, name, marks=wide * PATHS[name].is_relative_to(WIDE_DATA), id=f"{version}-{name}")
        for version, golden in GOLDEN.items()
        for name in sorted(golden)
        if name in PATHS
    ]


@pytest.mark.parametrize(("version", "recording"), at_hand())
def test_a_recording_holds_what_the_reference_found(version: str, recording: str) -> None:
    FOUND[version, recording] = list(differences(version, recording))
    unknown = [d for d in FOUND[version, recording] if not any(row.covers(d) for row in TABLES[version])]
    assert not unknown, f"{PAGE.name} does not say why: {unknown}"


@pytest.mark.wide
def test_every_documented_difference_is_there() -> None:
    if missing := GOLDEN[OLDEST].keys() - PATHS.keys():
        pytest.skip(f"{len(missing)} recordings are not at hand, like {min(missing)}")
    for version, golden in GOLDEN.items():
        for recording in golden:
            if (version, recording) not in FOUND:
                FOUND[version, recording] = list(differences(version, recording))
    seen = {version: [d for (v, _), found in FOUND.items() if v == version for d in found] for version in GOLDEN}
    stale: list[Documented] = [row for row in TABLE if not any(row.covers(d) for d in seen[OLDEST])]
    stale += [row for row in NEWEST_TABLE if not any(row.covers(d) for d in seen[NEWEST])]
    assert not stale


def test_a_difference_between_versions_that_no_row_covers_is_found() -> None:
    """The tables are read by their headings: a row of the newer version does not cover the older one's."""
    assert len(TABLE) > 30
    assert NEWEST_TABLE
    one = Difference("generated/rob_comp_lz4.mcap", "/temp", "Measurements:units", "missing")
    assert any(row.covers(one) for row in TABLES[NEWEST])
    assert not any(row.covers(one) for row in TABLES[OLDEST])
    assert not any(row.covers(one._replace(what="values")) for row in TABLES[NEWEST])
