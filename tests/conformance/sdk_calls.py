"""Ask a served lake and Rerun's own server by the real SDK, call by call, and compare what comes back.

    python tests/conformance/sdk_calls.py --server "chunkmill serve LAKE --port {port}" drive.rrd folder/

Run it by the interpreter of an environment with the rerun-sdk that is to be the client; it does not import chunkmill.
``--peer`` is the command of Rerun's server, by default that of the same environment. First come the stories of
``sdk_catalog_calls.py``, on recordings that this script writes, then each recording is registered in a dataset of its
own, there and here, and read by all of ``sdk_recording_calls.py``. Answers are compared by schema, rows and text, but
for ids, places and times of registration, which are those of one catalog.

Prints each difference, the public methods of ``rerun.catalog`` that were not called, and the figures. Ends with 1 where
a difference is not in ``KNOWN``, or a method was not called that ``LEFT_OUT`` does not have.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import re
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import rerun.catalog
from sdk_answers import CALLED, answered, differences
from sdk_catalog_calls import stories
from sdk_recording_calls import Calls, recording_calls
from sdk_sides import Side, write_files
from served_tests import Served

try:
    from rerun.chunk import LazyStore
except ImportError:
    from rerun.experimental import LazyStore

FOOTERLESS = "without a footer"

ERRORS = "errors"
NAMES = "empty names, names that begin with `__`"
OLD_NAME = "the name that an entry had before `set_name`"
NO_RECORDING = "registering an RRD that never names its recording, or has none"

KNOWN: dict[str, str] = {
    r"entries: by the old name: |tables: (by id|(rows of|append to) a deleted table): ": OLD_NAME,
    r"names: dataset '': |names: (dataset|table) '__x': ": NAMES,
    r"names: table ' ': ": "a table whose name begins or ends with spaces",
    r"names after deletion: answer is \['__entries'\] here": "an entry that is refused, as its name is taken",
    r"registration: (one again(: error)?|a prefix( again| without files)): text": ERRORS,
    r"registration: (no such file|a timeline of another type): text": ERRORS,
    r"registration: no recording: |uploads: what is no recording: text": "a file that is no RRD, in `register`",
    r"registration: a scheme that is not known: ": "a URI whose scheme is not known",
    r"(registration: a blueprint|blueprints: register a recording): ": NO_RECORDING,
    r"registration: good and bad: ": "the `segment_id` of a file that could not be registered",
    r"tables: SQL of no such table: text": ERRORS,
    r"tables: delete entries: ": "`__entries`",
    r"tables: register (no table|what is not there): ": "`register_table` of a place without a table",
    r"writes: (append|upsert) of another schema: text": "errors in rows that are written",
    r"writes: upsert without a key: ": "errors in rows that are written",
    r"blueprints: set an unknown default: ": "`set_default_blueprint` of an unknown one",
    r"blueprints: dataset: set name: ": "`set_name` of a dataset that holds blueprints or assets",
    r"blueprints: delete without the dataset: ": "`delete` of an entry whose blueprint dataset was deleted",
    r"(blueprints|assets): register (what is not there|one that is not static): text": ERRORS,
    r"rest: (global )?maintenance( of all)?: ": "`do_maintenance`, `do_global_maintenance`",
    r"rest: (index of words|words|delete indexes): ": "`create_*_search_index`, `search_*`, by a client of 0.33",
    rf"{FOOTERLESS}.*: (rerun_num_chunks|(rerun_)?size_bytes) is": "registering an RRD without a footer",
    rf"{FOOTERLESS}.*: store.*: (chunk |summary: answer)": "registering an RRD without a footer",
    r"rerun__file[1-6].rrd: refused: None here": "registering an RRD with a footer of Rerun 0.28's drafts",
    r"rerun__file[1-6].rrd: .*: rerun_(num_chunks|size_bytes) is": "registering an RRD without a footer",
    r": field property:(ParquetMetadata:)?file_metadata is": "a property whose component does not begin",
    r"fox_(location|pointcloud).rrd: store: schema: answer": "a component that is null in all rows of a chunk",
    r"min_text_log.rrd.*: (refused|segment ids): ": NO_RECORDING,
}
"""Differences that docs/differences.md tells of: what is printed, and how the row there begins."""

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
            found = [f"{name}: {call}: {one}" for one in differences(here, there)]
            self.counts["calls"] += 1
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


def compare_recording(name: str, path: Path, sides: tuple[Side, Side], into: Comparison) -> None:
    """Register a recording on both sides, or a blueprint, and compare all that reads it."""
    datasets = [side.client.create_dataset(name) for side in sides]
    told = path.name if has_footer(path) else f"{path.name} ({FOOTERLESS})"
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


def recordings_in(paths: list[Path]) -> Iterator[Path]:
    """The files that paths mean."""
    for path in paths:
        yield from sorted(file for file in path.rglob("*.r[br][ld]")) if path.is_dir() else [path]


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
    options = parser.parse_args()
    CALLED.watch(watched_classes())
    warnings.simplefilter("ignore")
    found = Comparison()
    with tempfile.TemporaryDirectory() as scratch, connected((options.server, options.peer), Path(scratch)) as sides:
        for (name, ours), (_, theirs) in zip(*map(stories, sides), strict=True):
            if options.story in (None, name):
                found.compare(name, ours, theirs)
        for number, path in enumerate(recordings_in(options.paths)):
            compare_recording(f"d{number}", path, sides, found)
    missing = CALLED.missing()
    for member in sorted(missing):
        print(f"not called: {member}: {LEFT_OUT.get(member, 'WITHOUT A REASON')}")
    figures = f"{dict(found.counts)}, {len(found.unknown)} unknown differences, {len(CALLED)} members called"
    print(f"{rerun.__version__}: {figures}")
    for row, count in found.known.most_common():
        print(f"  {count} times: {row}")
    return 1 if found.unknown or missing - set(LEFT_OUT) else 0


if __name__ == "__main__":
    sys.exit(main())
