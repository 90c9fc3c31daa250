"""Processes that do everything at once on one catalog; what they say they did is replayed in the order of versions.

    python tests/faults/catalog_writers.py [--processes 8] [--operations 200] [--where FOLDER|s3] [--seed 1] [--unsafe]

First all create the same datasets, and of each name exactly one gets it. Then each does seeded operations: create,
rename, delete, register, re-register, unregister, set the default blueprint, ingest a batch, compact, vacuum, and reads
of entries, manifests and values; make, rename and delete tables, write and remove rows of its own in them, backfill a
column, refresh a view, and read. Rows, columns and views are what these make of them. Each version of the catalog's
entries and of each store was published by one operation, and replayed in the order of versions these give all that any
reader saw, at one version between its beginning and its end, and what is there at the end. Who did not come through got
an error that was true meanwhile, and that says whether to try again. ``unsafe`` plants commits that overwrite those of
others, which has to be found.
Prints ``N passed, M failed``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from unittest import mock

from catalog_model import ENTRIES, UNKNOWN, Done, Replay, counted
from catalog_tables import TABLES, TableWork, is_gone, judged_tables, schema
from chunkmill.engine import Ingest
from chunkmill.engine.catalog import CatalogClient, DatasetEntry, EntryKind, TableEntry
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.errors import ChunkmillError, CommitUnknownError, NotFoundError, ReadError, RegistrationError
from chunkmill.engine.recordings import RecordingsFolder
from chunkmill.engine.rrd import RrdWriter, StoreEntry
from chunkmill.engine.storage import VersionFiles
from chunkmill.engine.storage.folder import Folder, LocalFolder
from chunkmill.engine.store import RecordingStore
from fault_runs import forked, s3_bucket, waited, warm_up

NAMES: Final = ("a", "b", "c", "d")
SEGMENTS: Final = 8
CONTENTS: Final = ("0", "1", "2", "3", "odd")
LAYERS: Final = ("base", "base", "labels")
BLUEPRINTS: Final = ("look-0", "look-1")
RACES: Final = (*NAMES, *(f"race {number}" for number in range(6)))
PATIENCE: Final = 3000.0
LONG_AGO: Final = 1_600_000_000
WEIGHTS: Final = {
    "create": 10,
    "rename": 6,
    "delete": 3,
    "register": 24,
    "unregister": 10,
    "blueprint": 4,
    "default": 5,
    "ingest": 10,
    "compact": 5,
    "vacuum": 5,
    "list": 6,
    "manifest": 6,
    "read": 6,
    "table": 4,
    "rows": 30,
}


def write_file(path: Path, recording_id: str, kind: str = "recording") -> None:
    """An RRD whose one value is its name, or, so that most have a number, a number; named otherwise where it is odd."""
    name, ticks = path.stem, [TimeColumn("tick", sequence=[0])]
    value = ComponentColumn("landed" if name.startswith("landed") else "value", [_value_of(name)])
    with RrdWriter(path) as writer:
        store = StoreEntry(kind, "tests", recording_id)
        writer.begin_store(store)
        writer.append(store, Chunk.from_columns("/at", ticks, [value]))
        writer.finish()
    os.utime(path, (LONG_AGO,) * 2)


def _value_of(name: str) -> str | float:
    what, _, which = name.rpartition("-")
    return float(which) + 10 * float(what[1:]) if what.startswith("s") and which != "odd" else name


def prepare(root: Path) -> int:
    """Write all that is going to be registered."""
    (root / "files").mkdir()
    for segment in range(SEGMENTS):
        for content in CONTENTS:
            write_file(root / "files" / f"s{segment}-{content}.rrd", f"s{segment}")
    for name in BLUEPRINTS:
        write_file(root / "files" / f"{name}.rbl", name, "blueprint")
    return 0


class Worker:
    """One process: what it does, and its log."""

    def __init__(self, root: Path, home: str, number: int, seed: int) -> None:
        self._files = root / "files"
        self._own = root / f"own-{number}"
        self._own.mkdir()
        self._number = number
        self._draw = random.Random(f"{seed}:{number}")
        self._client = CatalogClient(home)
        self._log = self._client._log
        self._commits: list[tuple[str, int, str]] = []
        self.tables = TableWork(root, number, self._draw)
        self._note_commits()

    def _note_commits(self) -> None:
        usual, commits, home = VersionFiles.commit, self._commits, str(self._log.root)

        def noted(files: VersionFiles, number: int, data: dict[str, Any]) -> bool:
            store, operation = files._store, str(data.get("operation", ENTRIES))
            what = ENTRIES if store == home else store, number
            try:
                made = usual(files, number, data)
            except CommitUnknownError:
                commits.append((*what, UNKNOWN + operation))
                raise
            if made:
                commits.append((*what, operation))
            return made

        VersionFiles.commit = noted  # type: ignore[method-assign]

    def work(self, operations: int) -> Iterator[Done]:
        """Race for names, and then do anything."""
        for race in RACES:
            yield self._run(Done("create", {"name": race, "exist_ok": False}), self._create)
        kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
        for at in range(operations - len(RACES)):
            (what,) = self._draw.choices(kinds, weights)
            yield self._operation(what, at)

    def _operation(self, what: str, at: int) -> Done:
        draw = self._draw
        if what == "create":
            arguments = {"name": draw.choice(NAMES), "exist_ok": draw.random() < 0.5}
            return self._run(Done("create", arguments), self._create)
        if what == "list":
            return self._run(Done("list", {}), self._list)
        if what in ("table", "rows"):
            return self._of_tables(what)
        got: list[DatasetEntry] = []
        there = [name for name in self._client.dataset_names() if name in NAMES]
        name = draw.choice(there if there and draw.random() < 0.9 else NAMES)
        found = self._run(Done("get", {"name": name}), lambda done: got.append(self._client.get_dataset(name)))
        if not got:
            return found
        dataset = got[0]
        arguments = {"id": str(dataset.id), "place": self._place(dataset), "at": at}
        return self._run(Done(what, arguments), lambda done: getattr(self, f"_{what}")(done, dataset))

    def _of_tables(self, what: str) -> Done:
        """Make, rename or delete a table, or do something with the rows of one."""
        draw = self._draw
        if what == "table":
            (what,) = draw.choices(("create", "rename", "delete"), (6, 2, 1))
        if what == "create":
            name = draw.choice(TABLES)
            make = lambda _: str(self._client.create_table(name, schema()).id)  # noqa: E731
            return self._run(Done("create", {"name": name, "exist_ok": False}), make)
        got: list[TableEntry] = []
        name = draw.choice([name for name in self._client.table_names() if name in TABLES] or TABLES)
        found = self._run(Done("get", {"name": name}), lambda _: got.append(self._client.get_table(name)))
        if not got:
            return found
        done = Done(what, {"id": str(got[0].id), "place": f"tables/{got[0].id}"})
        if what == "rename":
            done.arguments["name"] = draw.choice(TABLES)
            return self._run(done, lambda _: got[0].set_name(done.arguments["name"]))
        return self._run(done, lambda _: got[0].delete() if what == "delete" else self._rows(got[0]))

    def _rows(self, entry: TableEntry) -> str:
        try:
            return self.tables.step(entry)
        except ChunkmillError as error:
            if is_gone(error):
                raise NotFoundError(f"the table was deleted meanwhile: {error}") from error
            raise

    def _place(self, dataset: DatasetEntry) -> str:
        return self._log.folder.place(f"datasets/{dataset.id}")

    def _run(self, done: Done, do: Callable[[Done], Any]) -> Done:
        """Do it, and note everything of it."""
        self._commits.clear()
        places = [ENTRIES, *([done.arguments["place"]] if "place" in done.arguments else [])]
        before = {place: self._newest(place) for place in places}
        try:
            done.result = do(done)
        except ChunkmillError as error:
            done.error, done.transient, done.text = type(error).__name__, error.transient, str(error)
        done.commits = list(self._commits)
        place = done.arguments.get("place")
        if place is not None and place not in before:
            before[place] = 0  # it turned out on the way which one it is
        done.windows = {place: (number, self._newest(place)) for place, number in before.items()}
        return done

    def _newest(self, place: str) -> int:
        return self._log.read().number if place == ENTRIES else RecordingsFolder(place).files.newest()

    # --- entries

    def _create(self, done: Done) -> str:
        return str(self._client.create_dataset(done.arguments["name"], exist_ok=done.arguments["exist_ok"]).id)

    def _list(self, done: Done) -> dict[str, tuple[str, str | None]]:
        del done
        version = self._log.read()
        kinds = EntryKind.DATASET, EntryKind.TABLE
        rows = [row for row in version.entries.values() if row.kind in kinds]
        return {row.name: (str(row.id), row.default_blueprint) for row in rows}

    def _rename(self, done: Done, dataset: DatasetEntry) -> None:
        done.arguments["name"] = self._draw.choice(NAMES)
        dataset.set_name(done.arguments["name"])

    def _delete(self, done: Done, dataset: DatasetEntry) -> None:
        del done
        dataset.delete()

    def _default(self, done: Done, dataset: DatasetEntry) -> None:
        done.arguments["blueprint"] = self._draw.choice((*BLUEPRINTS, None))
        hidden = dataset.blueprint_dataset()
        assert hidden is not None
        done.arguments["place"] = self._place(hidden)
        dataset.set_default_blueprint(done.arguments["blueprint"])

    def _blueprint(self, done: Done, dataset: DatasetEntry) -> list[str | None]:
        name = self._draw.choice(BLUEPRINTS)
        hidden = dataset.blueprint_dataset()
        assert hidden is not None
        more = {"files": [(name, name)], "layer": "base", "on_duplicate": "replace", "blueprint": name}
        done.arguments.update(more, place=self._place(hidden))
        try:
            dataset.register_blueprint(str(self._files / f"{name}.rbl"))
        except RegistrationError as error:
            if "\nEntry id " in str(error):
                raise NotFoundError(f"the dataset was deleted meanwhile: {error}") from error
            raise
        return [None]

    # --- segments

    def _register(self, done: Done, dataset: DatasetEntry) -> list[str | None]:
        draw = self._draw
        segments = draw.sample(range(SEGMENTS), draw.choice((1, 1, 2, 4)))
        names = [f"s{segment}-{draw.choices(CONTENTS, (8, 8, 8, 8, 1))[0]}" for segment in segments]
        how = draw.choice(("replace", "replace", "skip", "error"))
        done.arguments["files"] = [(name.partition("-")[0], name) for name in names]
        done.arguments.update(layer=draw.choice(LAYERS), on_duplicate=how)
        places = [str(self._files / f"{name}.rrd") for name in names]
        handle = dataset.register(places, layer_name=done.arguments["layer"], on_duplicate=how)
        results = {result.uri: result.error for result in handle.iter_results(60.0)}
        try:
            handle.wait()
        except RegistrationError as error:
            done.transient = error.transient
        told = [results[place] for place in places]
        if all(error is not None and error.startswith("Entry id ") for error in told):
            raise NotFoundError(f"the dataset was deleted meanwhile: {told[0]}")
        return told

    def _unregister(self, done: Done, dataset: DatasetEntry) -> None:
        draw = self._draw
        segments = [f"s{n}" for n in draw.sample(range(SEGMENTS), draw.choice((0, 1, 2)))]
        layers = ["labels"] if not segments or draw.random() < 0.3 else []
        done.arguments.update(segments=segments, layers=layers)
        dataset.unregister(segments_to_drop=segments, layers_to_drop=layers)

    def _ingest(self, done: Done, dataset: DatasetEntry) -> None:
        at = done.arguments["at"]
        name = f"landed-{self._number}-{at}"
        done.arguments.update(segment=name, name=name)
        landing = self._own / f"landing-{at}"
        landing.mkdir()
        write_file(landing / f"{name}.rrd", name)
        checkpoint = self._own / f"at-{at}"
        options: dict[str, Any] = {"settle": 0, "executor": "inline", "optimize": None, "checkpoint": checkpoint}
        query = Ingest(landing, into=dataset, **options).start(once=True)
        if not query.await_termination(60.0):
            raise TimeoutError("the ingestion does not end")

    def _compact(self, done: Done, dataset: DatasetEntry) -> None:
        del done
        dataset.do_maintenance(compact_fragments=True)

    def _vacuum(self, done: Done, dataset: DatasetEntry) -> None:
        del done
        dataset.do_maintenance(cleanup_before=datetime.now(UTC), unsafe_allow_recent_cleanup=True)

    def _manifest(self, done: Done, dataset: DatasetEntry) -> list[tuple[str, str, str]]:
        del done
        rows = dataset.manifest().to_arrow_table().to_pylist()
        found = []
        for row in rows:
            segment = row["rerun_segment_id"]
            name = segment if segment.startswith("landed") else Path(row["rerun_storage_url"]).stem
            found.append((segment, row["rerun_layer_name"], name))
        return found

    def _read(self, done: Done, dataset: DatasetEntry) -> list[tuple[str, str, str]]:
        """Values, of one version, unless a vacuum was faster than that."""
        place = self._place(dataset)
        for _ in range(20):
            newest = RecordingsFolder(place).newest()
            if newest is None:
                return []
            try:
                store = RecordingStore.open(place, version=newest.number)
                return list(values_in(store))
            except ReadError:
                if RecordingsFolder(place).files.newest() <= newest.number:
                    raise
        done.text = "vacuums were faster"
        raise TimeoutError(done.text)


def values_in(store: RecordingStore) -> Iterator[tuple[str, str, str]]:
    """The value of each layer, as the name of its file."""
    for entry in store:
        (chunk,) = store.recording(entry)
        columns = chunk.to_record_batch().to_pydict()
        value = (columns.get("value") or columns["landed"])[0][0]
        name = value if isinstance(value, str) else f"{entry.recording_id}-{int(value) % 10}"
        expected = _value_of(name)
        assert value == expected, f"{entry.recording_id} holds {value}"
        yield entry.recording_id, entry.layer, name


def work(root: Path, home: str, number: int, processes: int, operations: int, seed: int, unsafe: bool) -> int:
    """One process."""
    warnings.simplefilter("ignore")
    if unsafe:
        plant_overwriting()
    worker = Worker(root, home, number, seed)
    (root / f"ready-{number}").touch()
    while len(list(root.glob("ready-*"))) < processes:
        time.sleep(0.005)
    with (root / f"log-{number}").open("w") as log:
        for done in worker.work(operations):
            print(json.dumps(asdict(done)), file=log)
    (root / f"rows-{number}").write_text(json.dumps(worker.tables.rows))
    return 0


def plant_overwriting() -> None:
    """Let a version take the place of one of its number."""

    def overwrite(folder: Folder, name: str, data: bytes, points: tuple[str, str]) -> bool:
        if isinstance(folder, LocalFolder):  # at once: no reader meets a moment without the version
            draft = f".{os.getpid()}.draft"
            folder.put(draft, data)
            (folder.location / draft).replace(folder.location / name)
        else:
            folder.put(name, data)
        return True

    def publish(files: VersionFiles, number: int, data: dict[str, Any]) -> bool:
        time.sleep(0.02)  # so that others have the same number in mind
        with mock.patch.object(type(files.folder), "create", overwrite):
            return publish_safely(files, number, data)

    publish_safely = VersionFiles.create
    VersionFiles.create = publish  # type: ignore[method-assign]


def judge(root: Path, home: str, processes: int) -> int:
    """Replay what was done; what is wrong is printed."""
    log = [
        Done(**{**data, "commits": [(p, n, w) for p, n, w in data["commits"]]})
        for number in range(processes)
        for data in map(json.loads, (root / f"log-{number}").read_text().splitlines())
    ]
    replay = Replay(log)
    wrong = replay.judged()
    client = CatalogClient(home)
    every = [*client.datasets(), *client.tables()]
    names = {entry.name: (str(entry.id), entry.default_blueprint()) for entry in every if entry.name != "__entries"}
    if names != replay.names[-1]:
        wrong.append(f"in the end there are the entries {names}, not {replay.names[-1]}")
    for name in RACES[len(NAMES) :]:
        winners = [done for done in log if done.what == "create" and done.arguments["name"] == name and not done.error]
        if len(winners) != 1:
            wrong.append(f"'{name}' has {len(winners)} winners")
    for place, states in replay.stores.items():
        store = RecordingStore.open(place)
        found = {(segment, layer): name for segment, layer, name in values_in(store)}
        looks = {(entry.recording_id, entry.layer): entry.recording_id for entry in store.blueprints()}
        if found | looks != states[-1]:
            wrong.append(f"in the end there is {found | looks} in {place}, not {states[-1]}")
    told = [json.loads((root / f"rows-{number}").read_text()) for number in range(processes)]
    wrong += judged_tables(client, root, told)
    versions = len(replay.names) + sum(len(states) for states in replay.stores.values())
    print("\n".join(wrong[:20]) or "nothing is wrong")
    print(f"{len(log)} operations, {versions} versions of {len(replay.stores)} stores: {counted(log)}")
    transient = sum(done.transient for done in log)
    print(f"{sum(done.error is not None for done in log)} errors, of which {transient} say that trying again helps")
    return 1 if wrong else 0


def play(options: argparse.Namespace, root: Path, home: str) -> list[str]:
    """Let all of them work, and judge; what went wrong."""
    log = root / "said"
    if waited(forked(lambda: prepare(root), log)):
        return [f"nothing could be prepared: {log.read_text()[-2000:]}"]
    rest = (options.processes, options.operations, options.seed, options.unsafe)
    pids = [forked(lambda n=n: work(root, home, n, *rest), log) for n in range(options.processes)]  # type: ignore[misc]
    codes = [waited(pid, PATIENCE) for pid in pids]
    if any(codes):
        return [f"they ended with {codes}: {log.read_text()[-3000:]}"]
    judged = waited(forked(lambda: judge(root, home, options.processes), root / "judged"), PATIENCE)
    print((root / "judged").read_text(), end="")
    return ["no order explains it"] if judged else []


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--operations", type=int, default=200, help="of each process")
    parser.add_argument("--where", help="a new folder, or s3; by default a temporary folder")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--unsafe", action="store_true")
    options = parser.parse_args(arguments)
    os.environ["CHUNKMILL_EXECUTOR"] = "inline"
    began = time.monotonic()
    warm_up()
    with tempfile.TemporaryDirectory(prefix="chunkmill-catalog-") as scratch, contextlib.ExitStack() as served:
        root = Path(scratch)
        home = options.where or str(root / "lake")
        if home == "s3":
            home = f"{served.enter_context(s3_bucket(root))}/lake"
        wrong = play(options, root, home)
    print("\n".join(wrong))
    print(f"{int(not wrong)} passed, {int(bool(wrong))} failed; seed {options.seed}, {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
