"""A served lake and Rerun's own server, asked by the SDK: the same answers to each call, but for what is told."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from places import DATA, REPOSITORY

if TYPE_CHECKING:
    from sdk_calls import Comparison

pytest.importorskip("rerun.catalog")

pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning"), pytest.mark.process]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[object, object]]:
    """Clients of both servers, each a process of its own: the SDK waits for answers with the interpreter's lock."""
    from sdk_calls import connected

    folder, programs = tmp_path_factory.mktemp("calls"), Path(sys.executable).parent
    commands = (
        f"{programs}/chunkmill serve {folder}/lake --create --port {{port}} --allow {folder} --allow {DATA} -q",
        f"{programs}/rerun server --host 127.0.0.1 --port {{port}}",
    )
    with connected(commands, folder) as both:
        yield both


IN_BRIEF = ("registration", "writes")


def test_registrations_and_tables_answer_as_those_of_rerun(sides) -> None:
    found = compared(sides, IN_BRIEF)
    assert found.unknown == []
    assert found.counts["equal"] > 60


@pytest.mark.slow
def test_a_served_lake_answers_as_rerun_does(sides) -> None:
    from sdk_calls import compare_recording
    from sdk_catalog_calls import stories

    found = compared(sides, {name for name, _ in stories(sides[0])} - {*IN_BRIEF})
    for path in (sides[0].files / "one.rrd", sides[0].files / "plain.rbl", *sorted(DATA.glob("rrd/*.rrd"))[-3:]):
        compare_recording(path.name, path, sides, found)
    assert found.unknown == []
    assert found.counts["equal"] > 500


def compared(sides, names) -> Comparison:
    """What came of the stories of these names."""
    from sdk_calls import Comparison
    from sdk_catalog_calls import stories

    found = Comparison()
    for (name, ours), (_, theirs) in zip(*map(stories, sides), strict=True):
        if name in names:
            found.compare(name, ours, theirs)
    return found


def test_a_call_that_answers_otherwise_is_told(sides) -> None:
    from sdk_calls import Comparison
    from sdk_recording_calls import recording_calls

    ours, theirs = sides
    datasets = [side.client.create_dataset("differing") for side in (ours, theirs)]
    for dataset, name in zip(datasets, ("one", "two"), strict=True):
        dataset.register([ours.uri(f"{name}.rrd")]).wait()
    found = Comparison()
    calls = (recording_calls(one, [name], theirs.own) for one, name in zip(datasets, ("one", "two"), strict=True))
    found.compare("other recordings", *calls)
    told = {text.split(": ")[1] for text in found.unknown}
    assert {"segment ids", "segment table", "manifest", "ranges", "rows by frame", "store", "url"} <= told


def test_each_known_difference_is_a_row_of_the_page() -> None:
    from sdk_calls import KNOWN

    page = (REPOSITORY / "docs" / "differences.md").read_text(encoding="utf-8")
    assert [row for row in sorted(set(KNOWN.values())) if f"\n| {row}" not in page] == []


def test_recordings_are_sampled_by_their_columns(tmp_path: Path, data: Path) -> None:
    from sdk_inputs import inputs_in, sample

    names = ("a", "b", "c", "d")
    for size, name in enumerate(names):  # nothing that is read: each a kind of its own
        (tmp_path / f"{name}.rrd").write_bytes(b"x" * (size + 1))
    assert list(sample({name: tmp_path / f"{name}.rrd" for name in reversed(names)}, 1)) == list(names)
    (tmp_path / "text.mcap").write_text("no recording")
    program = f"{Path(sys.executable).parent}/chunkmill"
    for name in ("one", "two", "three"):
        (tmp_path / f"{name}.mcap").write_bytes((data / "demo.mcap").read_bytes())
    found = inputs_in([tmp_path], program, tmp_path.with_name("converted"), 2)
    assert [Path(name).name for name in found.recordings][:4] == ["a.rrd", "b.rrd", "c.rrd", "d.rrd"]
    assert (len(found.recordings), found.like_others) == (6, 1)
    assert [text.partition(": ")[0] for text in found.refused] == [str(tmp_path / "text.mcap")]


def test_a_run_that_was_cut_goes_on(tmp_path: Path) -> None:
    from sdk_calls import Progress

    done: list[str] = []
    for names in ("ab", "abc"):
        progress = Progress(tmp_path)
        for name in names:
            progress.do(name, lambda found, name=name: (done.append(name), found.tell(f"of {name}")))
    assert done == ["a", "b", "c"]
    assert Progress(tmp_path).whole().unknown == ["of a", "of b", "of c"]


def test_digests_are_those_of_values_wherever_they_lie() -> None:
    from sdk_answers import digests

    kind = pa.struct([("a", pa.list_(pa.list_(pa.int8()))), ("d", pa.decimal128(3, 2)), ("t", pa.time64("us"))])
    values = [
        {"a": [[1, 2], []], "d": Decimal("1.25"), "t": None},
        {"a": [[1], [2]], "d": Decimal("1.25"), "t": None},
        {"a": [[1, 2], None], "d": Decimal("1.25"), "t": None},
        {"a": [], "d": None, "t": time(1, 2)},
        {"a": None, "d": None, "t": None},
        None,
    ]
    column = pa.array([None, *values, *values], kind)
    found = digests(column)
    assert len(set(found)) == len(values)
    assert found[1:7] == found[7:] == digests(column[7:]) == [digests(column[at : at + 1])[0] for at in range(1, 7)]
    assert digests(column[6:8]) != digests(column[5:7])
    assert set(digests(pa.array([[[7, 8]]] * 3))) == set(digests(pa.array([[[7, 8]]])))
