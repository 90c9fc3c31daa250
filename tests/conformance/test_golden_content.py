"""What every recording of the wide collection holds: as the reference found it, but for the documented differences."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from chunkmill.engine.errors import ReadError, ReadWarning
from golden_content import Difference, Documented, compared, content, documented, load_tool
from places import REPOSITORY, SHARED_DATA

SHARED = SHARED_DATA.parent
GOLDEN = SHARED / "golden" / "content" / "0.33.1"
TOOL = SHARED / "tools" / "content_digest.py"
PAGE = REPOSITORY / "docs" / "differences.md"

if not GOLDEN.is_dir() or not TOOL.is_file():
    pytest.skip(f"the reference's answers are not at {GOLDEN}", allow_module_level=True)

RECORDINGS = sorted(str(p.relative_to(GOLDEN)).removesuffix(".json") for p in GOLDEN.rglob("*.json"))
TABLE = documented(PAGE)
SEEN: list[Difference] = []
COMPARED: set[str] = set()


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    return load_tool(TOOL)


def differences(tool: ModuleType, recording: str) -> Iterator[Difference]:
    """All differences of a recording, documented or not."""
    golden: Any = json.loads((GOLDEN / f"{recording}.json").read_text())
    failed = isinstance(golden, dict)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReadWarning)
            ours = content(tool, SHARED_DATA / recording)
    except ReadError as error:
        if not failed:
            yield Difference(recording, "", "", "fails", str(error))
        return
    except ValueError as error:  # the program cannot show every value, whoever has read it
        if not failed or str(error) not in golden["error"]:
            raise
        return
    if failed:
        yield Difference(recording, "", "", "error", golden["error"])
        return
    yield from compared(recording, golden, ours)


@pytest.mark.parametrize("recording", RECORDINGS)
def test_a_recording_holds_what_the_reference_found(tool: ModuleType, recording: str) -> None:
    found = list(differences(tool, recording))
    SEEN.extend(found)
    COMPARED.add(recording)
    unknown = [d for d in found if not any(row.covers(d) for row in TABLE)]
    assert not unknown, f"{PAGE.name} does not say why: {unknown}"


def test_every_documented_difference_is_there() -> None:
    if set(RECORDINGS) - COMPARED:
        pytest.skip("needs all comparisons above, in the same run")
    stale: list[Documented] = [row for row in TABLE if not any(row.covers(d) for d in SEEN)]
    assert not stale
