"""Ask a served lake and Rerun's own server by the real SDK, call by call, and compare what comes back.

    python tests/conformance/sdk_calls.py --server "chunkmill serve LAKE --create --port {port}" drive.rrd folder/
    python tests/conformance/sdk_calls.py --server … --minutes 20 --work FOLDER ../shared/data    # and again: goes on

Run it by the interpreter of an environment with the rerun-sdk that is to be the client; it does not import chunkmill.
``--peer`` is the command of Rerun's server, by default that of the same environment. First come the stories of
``sdk_catalog_calls.py``, on recordings that this script writes, then each recording, the smallest first, is registered
in a dataset of its own, there and here, and read by all of ``sdk_recording_calls.py``; what is no RRD is converted by
the first word of ``--server``. Of recordings that have the same columns ``--alike`` are taken, the largest first, then
the smallest. Answers are compared by schema, rows and text, but for ids, places and times of registration, which are
those of one catalog. What is known of stories and recordings stands in ``FOLDER/calls.json``, and is not asked again.

Prints each difference, the public methods of ``rerun.catalog`` that were not called, what was not read and why, and the
figures. Ends with 1 where a difference is not in ``KNOWN``, a method was not called that ``LEFT_OUT`` does not have, or
time was short.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import json
import re
import shlex
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import rerun.catalog
from sdk_answers import CALLED, answered, differences, digests
from sdk_catalog_calls import stories
from sdk_inputs import TOO_LARGE, inputs_in
from sdk_recording_calls import Calls, recording_calls
from sdk_sides import Side, write_files
from served_tests import Served

try:
    from rerun.chunk import LazyStore
except ImportError:
    from rerun.experimental import LazyStore

FOOTERLESS = "without a footer"

BLUEPRINTS = "blueprints and assets"
ERRORS = "errors"
NAMES = "empty names, names that begin with `__`"
OLD_NAME = "the name that an entry had before `set_name`"
NO_RECORDING = "registering an RRD that never names its recording, or contains no recording"

LOST_ROWS = "a 0.33 client that reads many entities at once"
STATIC = "static values, when a 0.33 client filters rows by the index"
NULL = pa.array([None], pa.list_(pa.list_(pa.uint8())))

KNOWN: dict[str, str] = {
    r"entries: by the old name: |tables: (by id|(rows of|append to) a deleted table): ": OLD_NAME,
    r"names: dataset '': |names: (dataset|table) '__x': ": NAMES,
    r"names: table ' ': ": NAMES,
    r"names after deletion: answer is \['__entries'\] here": "an entry that is refused, as its name is taken",
    r"registration: (one again(: error)?|a prefix( again| without files)): text": ERRORS,
    r"registration: (no such file|a timeline of another type|a folder): text": ERRORS,
    r"registration: a prefix that is not there: text": ERRORS,
    r"registration: no recording: |uploads: what is no recording: text": "a file that is no RRD, in `register`",
    r"uploads: (no bytes|what is no recording: error)": "`stage` of a file that is no RRD",
    r"registration: a scheme that is not known: ": "a URI whose scheme is not known",
    r"(registration: a blueprint|blueprints: register a recording): ": NO_RECORDING,
    r"registration: good and bad: ": "the `segment_id` of a file that could not be registered",
    r"tables: SQL of no such table: text": ERRORS,
    r"tables: delete entries: ": "`__entries`",
    r"tables: register (no table|what is not there): ": "`register_table` of a place without a table",
    r"writes: (append|upsert) of another schema: (text|error)": "errors in rows that are written",
    r"writes: (upsert a key twice|rows after upsert of what is refused): ": "errors in rows that are written",
    r"writes: upsert without a key: ": "errors in rows that are written",
    r"blueprints: set an unknown default: ": BLUEPRINTS,
    r"blueprints: dataset: set name: ": BLUEPRINTS,
    r"blueprints: delete without the dataset: ": BLUEPRINTS,
    r"(blueprints|assets): register (what is not there|one that is not static): text": ERRORS,
    r"rest: (global )?maintenance( of all)?: ": "`do_maintenance`, `do_global_maintenance`",
    r"rest: (index of words|words|delete indexes): ": "`create_*_search_index`, `search_*`",
    rf"{FOOTERLESS}.*: (rerun_num_chunks|(rerun_)?size_bytes) is": "registering an RRD without a footer",
    rf"{FOOTERLESS}.*: store.*: (chunk |summary: answer)": "registering an RRD without a footer",
    r"rerun__file[1-6].rrd: refused: None here": "registering an RRD without a footer, or with Rerun 0.28's draft",
    r"rerun__file[1-6].rrd: .*: rerun_(num_chunks|size_bytes) is": "registering an RRD without a footer",
    r": field property:(ParquetMetadata:)?file_metadata is": "a property whose component does not begin",
    r"(fox_location|fox_pointcloud|cloud2_noxyz).rrd: store: schema: answer": "a component that is null",
    r"pq_odd.rrd .*: (refused: None here|fails with)": "a column without a name",
    r"(min_text_log|column_chunk_key_value_metadata).rrd.*: (refused|segment ids): ": NO_RECORDING,
}
"""Differences that docs/differences.md tells of: what is printed, and how the row there begins."""

if rerun.__version__.startswith("0.33."):
    _MISSING = f"(None|{digests(NULL)[0]})"
    KNOWN |= {
        rf": \w+ at a value: \S+:(Mcap\w+|RecordingInfo):\w+ is .* here, and {_MISSING} there": STATIC,
        r"rerun__rosbag2_2025\S+: .*(rows|count by \w+: answer) is \d+ here, and \d+ there": LOST_ROWS,
    }

LEFT_OUT = {
    **dict.fromkeys(
        [f"IndexConfig.{name}" for name in ("component_column", "properties", "time_column")]
        + [f"IndexingResult.{name}" for name in ("column", "debug_info", "properties", "statistics")],
        "Rerun's own server makes no index for searching",
    ),
}
"""Public members that are not called, and why."""


class Comparison:
    """Calls that were made on both sides, and what came of them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.unknown: list[str] = []
        self.known: Counter[str] = Counter()

    def compare(self, name: str, ours: Calls, theirs: Calls) -> None:
        """Make the calls of both, one after the other."""
        while True:
            (call, ask), (same, ask_there) = _next(ours), _next(theirs)
            if call != same or (ask is None and call is not None):
                self.tell(f"{name}: {call} here, and {same} there")
            if ask is None or call != same:
                return
            here, there = answered(ask), answered(ask_there)
            self.counts["calls"] += 1
            self.counts["unlucky here"] += here is None
            self.counts["unlucky there"] += there is None
            if here is None or there is None:
                continue
            found = [f"{name}: {call}: {one}" for one in differences(here, there)]
            self.counts["differing" if found else "equal"] += 1
            self.counts["refused by both"] += "error" in here and "error" in there
            for text in found:
                self.tell(text)

    def tell(self, text: str) -> None:
        """Print a difference, unless it is known."""
        row = next((row for pattern, row in KNOWN.items() if re.search(pattern, text)), None)
        if row is not None:
            self.known[row] += 1
        else:
            self.unknown.append(text)
            print(text, flush=True)


def _next(calls: Calls) -> tuple[str | None, Any]:
    """The next call; None at the end, and the error where what comes before it fails."""
    try:
        return next(calls, (None, None))
    except Exception as error:  # noqa: BLE001 (it is compared)
        return f"fails with {type(error).__name__}: {str(error)[:200]}", None


class Progress:
    """What came of stories and recordings, kept in a file, so that a run that was cut goes on."""

    def __init__(self, folder: Path) -> None:
        self._place = folder / f"calls_{rerun.__version__}.json"
        self._done: dict[str, Any] = json.loads(self._place.read_text()) if self._place.exists() else {}
        for one in self._done.values():
            CALLED.note_names(one["called"])
            found = Comparison()  # what was not known then may be known by now
            for text in one["unknown"]:
                found.tell(text)
            one["unknown"], one["known"] = found.unknown, Counter(one["known"]) + found.known

    def do(self, name: str, work: Callable[[Comparison], None]) -> None:
        """Do what was not done yet, and keep what came of it."""
        if name in self._done:
            return
        found = Comparison()
        work(found)
        self._done[name] = {
            "counts": found.counts,
            "unknown": found.unknown,
            "known": found.known,
            "called": CALLED.names(),
        }
        self._place.write_text(json.dumps(self._done, indent=1))

    def whole(self) -> Comparison:
        """All that was found."""
        found = Comparison()
        for one in self._done.values():
            found.counts.update(one["counts"])
            found.known.update(one["known"])
            found.unknown += one["unknown"]
        return found


def compare_recording(name: str, path: Path, sides: tuple[Side, Side], into: Comparison) -> None:
    """Register a recording on both sides, or a blueprint, and compare all that reads it."""
    datasets = [side.client.create_dataset(re.sub("[^A-Za-z0-9.]", "-", name)[-180:]) for side in sides]
    told = name if has_footer(path) else f"{name} ({FOOTERLESS})"
    refused = [registered(dataset, path) for dataset in datasets]
    if any(refused):
        if not all(refused):
            into.tell(f"{told}: refused: {refused[0]} here, and {refused[1]} there")
        into.counts["recordings refused"] += 1
    else:
        read = [dataset.blueprint_dataset() if path.suffix == ".rbl" else dataset for dataset in datasets]
        segments = sorted(set.intersection(*(set(one.segment_ids()) for one in read)))
        into.counts["recordings"] += 1
        if segments:
            calls = (recording_calls(one, segments, side.own) for one, side in zip(read, sides, strict=True))
            into.compare(told, *calls)
        else:
            into.compare(told, *(iter([("segment ids", one.segment_ids)]) for one in read))
    for dataset in datasets:
        dataset.delete()


def has_footer(path: Path) -> bool:
    """Whether an RRD ends with the frame of a footer."""
    return b"RRF2FOOT" in path.read_bytes()[-32:]


def registered(dataset: Any, path: Path) -> str | None:
    """Register a file; the kind of the error where that is refused."""
    try:
        if path.suffix == ".rbl":
            dataset.register_blueprint(path.absolute().as_uri())
        else:
            dataset.register([path.absolute().as_uri()]).wait()
    except Exception as error:  # noqa: BLE001 (it is compared)
        return type(error).__name__
    return None


def watched_classes() -> list[type]:
    """The public classes of the SDK's catalog, and the store of a segment; not those that others stand on."""
    found = [
        kind
        for name, kind in inspect.getmembers(rerun.catalog, inspect.isclass)
        if not name.startswith("_") and kind.__module__.startswith("rerun") and not issubclass(kind, Exception)
    ]
    bases = {base for kind in found for base in kind.__mro__[1:]}
    return [*(kind for kind in found if kind not in bases), LazyStore]


@contextlib.contextmanager
def connected(commands: tuple[str, str], folder: Path) -> Iterator[tuple[Side, Side]]:
    """Start two servers, and give a client of each, with the recordings of the stories."""
    write_files(folder / "files")
    with contextlib.ExitStack() as running:
        sides = []
        for name, command in zip(("ours", "theirs"), commands, strict=True):
            (folder / name).mkdir()
            server = Served(command, folder, f"{folder}/{name}.log")
            running.callback(server.kill)
            client = rerun.catalog.CatalogClient(f"rerun+http://127.0.0.1:{server.port}")
            sides.append(Side(client, folder / "files", folder / name))
        yield sides[0], sides[1]


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--server", required=True)
    parser.add_argument("--peer", default=f"{Path(sys.executable).parent}/rerun server --port {{port}}")
    parser.add_argument("--story", help="only this one")
    parser.add_argument("--recordings", default="", help="a regular expression: only recordings whose names have it")
    parser.add_argument("--alike", type=int, default=2, help="how many recordings with the same columns are taken")
    parser.add_argument("--minutes", type=float, default=1000, help="when no further recording is begun")
    parser.add_argument("--work", type=Path, help="where a run that was cut goes on; by default it begins anew")
    options = parser.parse_args()
    CALLED.watch(watched_classes())
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as scratch:
        return run(options, Path(scratch))


def run(options: argparse.Namespace, scratch: Path) -> int:
    """Compare all, and print what came of it."""
    end = time.monotonic() + 60 * options.minutes
    work = options.work or scratch
    work.mkdir(parents=True, exist_ok=True)
    progress, unread = Progress(work), []
    program = shlex.split(options.server)[0]
    inputs = inputs_in(options.paths, program, work / "converted", options.alike)
    wanted = {name: path for name, path in inputs.recordings.items() if re.search(options.recordings, name)}
    with connected((options.server, options.peer), scratch) as sides:
        for (name, ours), (_, theirs) in zip(*map(stories, sides), strict=True):
            if options.story in (None, name):
                progress.do(name, lambda found, name=name, both=(ours, theirs): found.compare(name, *both))
        for name, path in wanted.items():
            if time.monotonic() > end:
                unread.append(name)
            else:
                progress.do(name, lambda found, told=(name, path): compare_recording(*told, sides, found))
    for text in inputs.refused:
        print(f"not converted: {text}")
    for name in inputs.too_large:
        print(f"not read: {name}: {TOO_LARGE[Path(name).name]}")
    print(f"not read: {inputs.like_others} recordings with the columns of {options.alike} that are")
    print(f"not read: {len(unread)} recordings, for which time was short, {', '.join(unread)[:300]}")
    found, missing = progress.whole(), CALLED.missing()
    for member in sorted(missing):
        print(f"not called: {member}: {LEFT_OUT.get(member, 'WITHOUT A REASON')}")
    print(f"{rerun.__version__}: {dict(found.counts)}, {len(found.unknown)} unknown differences, {len(CALLED)} members")
    for row, count in found.known.most_common():
        print(f"  {count} times: {row}")
    return 1 if found.unknown or missing - set(LEFT_OUT) or unread else 0


if __name__ == "__main__":
    sys.exit(main())
