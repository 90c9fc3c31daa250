"""Cut the life of a dataset at every durable step, and look whether each change is there whole, or not at all.

    python tests/faults/dataset_points.py [--every 1] [--points P,…] [--kinds K,…] [--seed 1]
    python tests/faults/dataset_points.py --case POINT:KIND:NTH[:UNSAFE]

A driver creates datasets, adopts a store of an earlier format, registers in place and by copy, replaces and drops
layers, ingests, sets blueprints, tags and restores versions, compacts, vacuums, renames and deletes. It is cut at one
time that one point is reached, by SIGKILL, an exception, a full disk or a torn write, and started again until it is
done. The catalog and each store, with the versions that have tags, are, whenever a reader looks, as they were after one
of the changes; when the driver starts again, as after the last that it was told of, or the one that was cut; and all
values are those of the files. Of an outcome that is not known nothing is removed. UNSAFE plants a mistake, which has to
be found. Prints ``N passed, M failed``, and a command for each failure.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import sys
import tarfile
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from catalog_points import ATTEMPTS, KINDS, Case, plant_unsafe_commit
from catalog_writers import prepare, write_file
from chunkmill.engine import Ingest, faults
from chunkmill.engine.catalog import CatalogClient, NotFoundError
from chunkmill.engine.errors import ChunkmillError, ReadError, RegistrationError, SourceMissingError
from chunkmill.engine.recordings import RecordingsFolder
from chunkmill.engine.storage import VersionFiles
from chunkmill.engine.store import RecordingStore
from fault_content import kept_content
from fault_runs import forked, reached, waited, warm_up
from point_cases import Attempt, told

OLD_STORE: Final = Path(__file__).parent.parent / "engine" / "recordings" / "data" / "store_of_format_3.tar.xz"
OF_STORES: Final = (
    "announce.",
    "shard.",
    "manifest.",
    "schema.",
    "table.",
    "version.",
    "entry.",
    "compact.",
    "vacuum.",
)
NEVER: Final = ("version.rebase", "entry.prune")
"""Points that one driver alone does not reach; ``catalog_points.py`` and ``crash_points.py`` do."""

State = dict[str, Any]
"""What is there: the entries, and what each store holds, by its place."""


class Story:
    """The changes, each of which can be made again where it is not known to be done."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.client = CatalogClient(root / "lake")
        self.changes: list[Callable[[], None]] = [
            lambda: self._create("drives"),
            lambda: self._register("drives", "s0-0", "s1-0", "s2-0"),
            lambda: self._register("drives", "s0-1", "s1-1", layer_name="labels"),
            lambda: self._create("old", root / "old"),
            lambda: self._register("old", "s3-0"),
            lambda: self._ingest("first"),
            lambda: self._register("drives", "s0-2", "s4-0", copy=True),
            lambda: self._tag("drives", "kept"),
            lambda: self.client.get_dataset("drives").unregister(segments_to_drop="s1"),
            lambda: self.client.get_dataset("drives").register_blueprint(str(root / "files" / "look-0.rbl")),
            lambda: self._ingest("second"),
            lambda: self.client.get_dataset("drives").do_maintenance(compact_fragments=True),
            lambda: self._vacuum("drives"),
            lambda: self._register("drives", "s5-0"),
            lambda: self._tag("drives", "other"),
            lambda: self._restore("drives", "kept"),
            lambda: self._vacuum("drives"),
            lambda: self._untag("drives", "kept"),
            lambda: self._restore("drives", "other"),
            lambda: self._untag("drives", "other"),
            lambda: self._rename("drives", "runs"),
            lambda: self.client.get_dataset("runs").set_default_blueprint(None),
            lambda: self._vacuum("runs"),
            lambda: self.client.get_dataset("old").delete(),
        ]

    def _create(self, name: str, url: Path | None = None) -> None:
        self.client.create_dataset(name, exist_ok=True, url=url)

    def _register(self, dataset: str, *names: str, **options: Any) -> None:
        places = [str(self.root / "files" / f"{name}.rrd") for name in names]
        self.client.get_dataset(dataset).register(places, **options).wait()

    def _ingest(self, name: str) -> None:
        fixed: dict[str, Any] = {"settle": 0, "executor": "inline", "optimize": None}
        query = Ingest(
            self.root / name, into=self.client.get_dataset("drives"), checkpoint=self.root / f"at-{name}", **fixed
        )
        started = query.start(once=True)
        if not started.await_termination(30):
            raise TimeoutError("the ingestion does not end")

    def _vacuum(self, name: str) -> None:
        now = datetime.now(UTC)
        self.client.get_dataset(name).do_maintenance(cleanup_before=now, unsafe_allow_recent_cleanup=True)

    def _tag(self, name: str, tag: str) -> None:
        if tag not in self.client.get_dataset(name).tags():
            self.client.get_dataset(name).tag(tag)

    def _untag(self, name: str, tag: str) -> None:
        if tag in self.client.get_dataset(name).tags():
            self.client.get_dataset(name).untag(tag)

    def _restore(self, name: str, tag: str) -> None:
        self.client.get_dataset(name).restore(tag)

    def _rename(self, name: str, new: str) -> None:
        if new not in self.client.dataset_names():
            self.client.get_dataset(name).set_name(new)


def state_of(root: Path) -> State:
    """What is there now, every value read; a store that a vacuum has moved on meanwhile is read again."""
    client = CatalogClient(root / "lake")
    names, places = [], {"old": str(root / "old")}
    for entry in client.datasets():
        try:
            names.append([entry.name, entry.default_blueprint()])
            hidden = entry.blueprint_dataset()
        except NotFoundError:
            continue
        if entry.name != "old" and hidden is not None:
            places |= {"drives": os.fspath(entry), "blueprints": os.fspath(hidden)}
    return {"entries": names, **{name: _stored(place) for name, place in places.items()}}


def _stored(place: str) -> dict[str, str]:
    while True:
        newest = RecordingsFolder(place).newest()
        if newest is None:
            return {}
        try:
            stored = {}
            for tag, number in {"": newest.number, **newest.tags}.items():
                store = RecordingStore.open(place, version=number)
                entries = [*store, *store.blueprints()]
                stored |= {f"{tag} {e.recording_id} {e.layer}".strip(): kept_content(store, e) for e in entries}
            return stored
        except ReadError:
            if RecordingsFolder(place).files.newest() <= newest.number:
                raise


def differing(found: State, *states: State) -> list[str]:
    """What is as in none of these states."""
    empty: dict[str, Any] = {}
    return [
        f"{place} is {what}"
        for place, what in found.items()
        if all(what != state.get(place, empty) for state in states) and not (not what and place != "entries")
    ]


def first_state(states: Sequence[State]) -> State:
    """What was there before the first change."""
    return {"entries": [], "old": states[0]["old"], "drives": {}, "blueprints": {}}


def told_so_far(root: Path) -> int:
    """The number of changes that the driver was told of as done."""
    told = root / "told"
    return len(told.read_bytes()) if told.exists() else 0


def is_clear(error: Exception) -> bool:
    """Whether an error is one of the project's own, and names the place."""
    has_place = isinstance(error, RegistrationError) and re.search("/(lake|old)[/:]", str(error))
    return isinstance(error, ChunkmillError) and bool(error.path or has_place)


def drive(root: Path, states: Sequence[State] | None, most: int | None = None) -> int:
    """Go on with the story where it was cut. Gives 0 at its end, 1 after a failure, 3 where something is wrong.

    Without ``states`` it notes them. It ends after ``most`` changes.
    """
    warnings.simplefilter("ignore")
    told, noted, story = root / "told", list[State](), Story(root)
    done = told_so_far(root)
    if states is not None and done < len(story.changes):
        found = state_of(root)
        before = states[done - 1] if done else first_state(states)
        if wrong := differing(found, before, states[done]):
            print(f"after {done} changes: {wrong}")
            return 3
        if all(found.get(place) == what for place, what in states[done].items()) and found != before:
            done += 1  # what was cut is there
    for number, change in enumerate(story.changes[done:most], done + 1):
        try:
            change()
        except Exception as error:  # noqa: BLE001 (whatever it is, is judged)
            print(f"change {number}: {type(error).__name__}: {error}")
            is_planned = "planned" in str(error) or getattr(error, "filename", None) in faults.POINTS  # between steps
            return 1 if is_clear(error) or is_planned else 3
        if states is None:
            noted.append(state_of(root))
        told.write_bytes(b"." * number)
    if states is None:
        (root / "states.json").write_text(json.dumps(noted))
    return 0


def watch(root: Path, states: Sequence[State]) -> int:
    """Look again and again; gives 0 where nothing was to be seen that is in no state."""
    warnings.simplefilter("ignore")
    first, looks = first_state(states), 0
    while not (root / "stop").exists() or not looks:
        try:
            found = state_of(root)
        except SourceMissingError:
            continue  # nothing was made yet
        if wrong := differing(found, first, *states):
            print(f"a reader saw that {wrong}")
            return 3
        looks += 1
    return 0


# --- mistakes


def plant_forgetting() -> None:
    """Let every commit that fails count as one that certainly failed, whose files are removed."""
    VersionFiles._certainly_not = lambda *_: True  # type: ignore[method-assign]


UNSAFE: Final = {"overwrite": plant_unsafe_commit, "forget": plant_forgetting}


def run(case: Case, unsafe: str, template: Path, root: Path) -> list[str]:
    """Run the story with one fault; what went wrong."""
    states: list[State] = json.loads((template / "states.json").read_text())
    make_root(root, template)
    environment = {faults.LOG: str(root / "log"), faults.PLAN: f"{case.point}:{case.kind}:{case.nth}"}
    reader = forked(lambda: watch(root, states), root / "seen")

    def driver() -> int:
        if unsafe:
            UNSAFE[unsafe]()
        return drive(root, states)

    wrong = []
    for _ in range(ATTEMPTS):
        code = waited(forked(driver, root / "said", environment))
        if code not in (0, 1, -9):
            wrong.append(f"the driver ended with {code}: {(root / 'said').read_text()[-2000:]}")
        if code not in (1, -9):
            break
    else:
        wrong.append(f"it was not done after {ATTEMPTS} attempts: {(root / 'said').read_text()[-2000:]}")
    (root / "stop").touch()
    if waited(reader):
        wrong.append(f"the reader ended: {(root / 'seen').read_text()[-2000:]}")
    wrong += [] if wrong else at_the_end(root, states[-1])
    if reached(root / "log").get(case.point, 0) < case.nth:
        wrong.append(f"{case.point} was not reached so often")
    return wrong


def at_the_end(root: Path, last: State) -> list[str]:
    """Whether all is there, and after a vacuum nothing but what is needed; what is wrong, found in a fork."""
    if waited(forked(lambda: _ended(root, last), root / "ended")):
        return [f"in the end {(root / 'ended').read_text()[-2000:]}"]
    return []


def _ended(root: Path, last: State) -> int:
    found = state_of(root)
    wrong = [f"{place}: {found.get(place)}, not {what}" for place, what in last.items() if found.get(place) != what]
    for entry in CatalogClient(root / "lake").datasets(include_hidden=True):
        folder = RecordingsFolder(os.fspath(entry))
        RecordingStore.open(folder.path).vacuum()
        tables = folder.version().tables
        manifests, shards = folder.named(tables)
        needed = {"tables": {t.name for t in tables}, "manifests": manifests, "shards": shards, "writers": set()}
        for kind, names in needed.items():
            left = set(getattr(folder, kind).names()) ^ (names - {""})
            wrong += [f"{kind} of {entry.name}: {sorted(left)}"] if left else []
        wrong += [f"{path} is left" for path in Path(folder.path).rglob(".*")]
    print("\n".join(wrong))
    return 1 if wrong else 0


def make_template(folder: Path) -> int:
    """Write all that the story is about, and note the states of a run without faults."""
    folder.mkdir()
    prepare(folder)
    for name in ("first", "second"):
        (folder / name).mkdir()
        write_file(folder / name / f"landed-{name}-1.rrd", f"landed {name}")
    with tarfile.open(OLD_STORE) as archive:
        archive.extractall(folder / "old", filter="data")
    root = folder / "clean"
    make_root(root, folder)
    os.environ.update({faults.LOG: str(root / "log"), faults.PLAN: ""})
    code = drive(root, None)
    if code == 0:
        shutil.copy(root / "states.json", folder)
        (folder / "counts.json").write_text(json.dumps(reached(root / "log")))
    return code


def make_root(root: Path, template: Path) -> None:
    """The folder of a case."""
    root.mkdir(exist_ok=True)
    (root / "log").mkdir()
    for name in ("files", "first", "second"):
        (root / name).symlink_to(template / name)
    if not (root / "old").exists():
        shutil.copytree(template / "old", root / "old")


def cases(options: argparse.Namespace, counts: dict[str, int]) -> Iterator[tuple[Case, str]]:
    """Every time that a point is reached, in every way, or each ``every``-th of these."""
    if options.case:
        for text in options.case.split(","):
            point, kind, nth, *unsafe = text.split(":")
            yield Case(point, kind, int(nth)), unsafe[0] if unsafe else ""
        return
    points = options.points.split(",") if options.points else [p for p in faults.POINTS if p.startswith(OF_STORES)]
    found = [
        Case(point, kind, nth)
        for point in points
        if point not in NEVER
        for kind in options.kinds.split(",")
        for nth in range(1, max(1, counts.get(point, 0)) + 1)  # one that is never reached is a failure
    ]
    random.Random(options.seed).shuffle(found)
    yield from ((case, "") for case in found[:: options.every])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--points", help="with commas")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", help="with commas")
    options = parser.parse_args(arguments)
    os.environ["CHUNKMILL_EXECUTOR"] = "inline"
    scratch = Path(tempfile.mkdtemp(prefix="chunkmill-dataset-"))
    began = time.monotonic()
    warm_up()
    try:
        if code := waited(forked(lambda: make_template(scratch / "template"), scratch / "log")):
            print(f"the story fails by itself, with {code}: {(scratch / 'log').read_text()[-3000:]}")
            return 1
        counts: dict[str, int] = json.loads((scratch / "template" / "counts.json").read_text())

        def tried() -> Iterator[Attempt]:
            for at, (case, unsafe) in enumerate(cases(options, counts)):
                text = f"{case}:{unsafe}" if unsafe else str(case)
                yield text, case.point, partial(run, case, unsafe, scratch / "template", scratch / str(at))
                shutil.rmtree(scratch / str(at))

        return told("dataset_points.py", "point", options.seed, began, tried())
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
