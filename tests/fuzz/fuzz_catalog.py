"""Damage files of a catalog and of a dataset's store, and give entries, segments and layers names of every kind.

    python tests/fuzz/fuzz_catalog.py [--mutants 2000] [--names 5000] [--seed 1]

A damaged version, table, manifest, schema or shard, or times, is a ``ReadError`` that names its file, or is read as it
was; it never gives other entries, columns or values. Whoever is announced by a damaged file lives or is dead.
``mutants`` are made of each kind of file. A name comes back exact or is refused, and no file ever lies outside of the
catalog, or in it under another name than the catalog's own. Prints what is wrong, and ends with 1 where something is.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import string
import sys
import tempfile
from pathlib import Path
from typing import Final
from unittest.mock import patch
from urllib.parse import parse_qs, urlsplit

from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.catalog.entries import MOST_CHARACTERS_OF_A_NAME
from chunkmill.engine.catalog.entry_log import EntryLog
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.errors import ReadError, UsageError
from chunkmill.engine.execution import Holder
from chunkmill.engine.recordings import RecordingsFolder, SchemaFiles, times_in, vacuum
from chunkmill.engine.recordings.vacuum import announced_runs
from chunkmill.engine.rrd import RrdWriter, StoreEntry
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from mutation import mutate

ALLOWED: Final = set(string.ascii_letters + string.digits + "_-.:[] ")
ODD: Final = ["", "..", ".", "../../x", "a" * MOST_CHARACTERS_OF_A_NAME, "b" * 181, "con", "a\n", "__x", "~", "%2e%2e"]
OF_EXAMPLE: Final = 5


def write_file(path: Path, recording_id: str) -> None:
    """An RRD with one value, the first number in its name."""
    number = float(re.findall(r"\d", path.name)[0])
    column = "landed" if path.name.startswith("landed") else "value"
    with RrdWriter(path) as writer:
        store = StoreEntry("recording", "tests", recording_id)
        writer.begin_store(store)
        values = [ComponentColumn(column, [10 * number])]
        writer.append(store, Chunk.from_columns("/at", [TimeColumn("tick", sequence=[0])], values))
        writer.finish()


def wrong_mutants(folder: Path, number: int, start: int) -> list[str]:
    """Damage a version so often; what is wrong."""
    client, draw, wrong = CatalogClient(folder), random.Random(start), []
    for name in ("a", "b"):
        client.create_dataset(name)
    log = EntryLog(folder)
    whole = log.read()
    version = folder / "catalog" / "versions" / "00000002.json"
    data = version.read_bytes()
    for at in range(number):
        version.write_bytes(mutate(draw, data, ()).data)
        try:
            if log.read() != whole:
                wrong.append(f"mutant {at} gives other entries")
        except ReadError as error:
            if error.path != str(version):
                wrong.append(f"mutant {at}: the error names {error.path}")
    return wrong


KINDS: Final = ("versions", "tables", "manifests", "schemas", "shards")
"""The folders of a store, of each of which files are damaged."""


def make_store(folder: Path) -> RecordingsFolder:
    """A dataset's store with layers in place, copied, ingested and removed, of two schemas."""
    dataset = CatalogClient(folder / "lake").create_dataset("a")
    files = [folder / f"{name}.rrd" for name in ("s0-0", "s1-1", "s2-2", "landed-3")]
    for path in files:
        write_file(path, path.stem)
    places = [str(path) for path in files]
    dataset.register(places[:2], times=True, executor="inline").wait()
    dataset.register(places[2:], copy=True, layer_name="copied").wait()
    dataset.register(places[0], layer_name="again").wait()
    dataset.unregister(segments_to_drop="s1-1")
    return RecordingsFolder(os.fspath(dataset))


def all_of(folder: RecordingsFolder) -> list[object]:
    """All that a store says, and all values in it."""
    version, live = folder.newest_live()
    found: list[object] = [version, *live]
    digests = [digest for digest in live.columns("schema")["schema"].to_pylist() if digest]
    found.append(SchemaFiles(folder).union(digests).to_string(show_field_metadata=True))
    for entry in live:
        found += [(chunk.header, chunk.to_record_batch().to_pydict()) for chunk in folder.chunks(entry)]
        times = times_in(folder, entry)
        if times is not None:
            columns = [*times.row_ids(), *(times.index(*line) for line in times.timelines()), times.validity("value")]
            found += [(column.values.tolist(), column.ends.tolist()) for column in columns]
    return found


def wrong_store_mutants(folder: Path, number: int, start: int) -> list[str]:
    """Damage each kind of file of a store so often; what is wrong."""
    folder.mkdir(exist_ok=True)
    store, draw, wrong = make_store(folder), random.Random(start), []
    whole = all_of(store)
    for kind in KINDS:
        paths = sorted((Path(store.path) / kind).iterdir())
        needed = paths[-1:] if kind == "versions" else paths
        for at in range(number):
            path = draw.choice(needed)
            data = path.read_bytes()
            mutant = mutate(draw, data, ())
            path.write_bytes(mutant.data)
            try:
                if all_of(store) != whole:
                    wrong.append(f"{kind} {at}, {mutant.what}, gives other data")
            except ReadError as error:
                if error.path != str(path) or not error.hint:
                    wrong.append(f"{kind} {at}, {mutant.what}: the error names {error.path}, and says {error.hint}")
            except Exception as error:  # noqa: BLE001 (whatever it is)
                wrong.append(f"{kind} {at}, {mutant.what}: {type(error).__name__}: {error}")
            path.write_bytes(data)
    return wrong + _wrong_announcements(store, number, draw)


def _wrong_announcements(store: RecordingsFolder, number: int, draw: random.Random) -> list[str]:
    path = Path(store.path) / "writers" / f"{'a' * 32}.json"
    path.write_bytes(Holder.here("writer", 60.0).to_bytes())
    data, wrong = path.read_bytes(), []
    if announced_runs(store) != ({path.stem}, set()):
        wrong.append(f"an announcement gives {announced_runs(store)}")
    with patch.object(vacuum, "_TORN", 0.0):
        for at in range(number):
            path.write_bytes(mutate(draw, data, ()).data)
            living, dead = announced_runs(store)
            if living | dead != {path.stem} or living & dead:
                wrong.append(f"announcement {at} gives {living} and {dead}")
    path.unlink()
    return wrong


def wrong_layers(folder: Path, number: int, start: int) -> list[str]:
    """Give segments and layers about so many names; what is wrong."""
    wrong: list[str] = []
    odd = st.sampled_from(
        [*ODD[1:], "/etc/passwd", "C:\\x", "CON", "e\u0301", "\u00e9", "A", "a", "\u202ea", "x" * 5000]
    )
    names = st.one_of(st.text(min_size=1, max_size=6), st.text("aA/\\.:%#?&= \0", min_size=1, max_size=8), odd)
    pairs = st.lists(st.tuples(names, names), min_size=OF_EXAMPLE, max_size=OF_EXAMPLE, unique_by=lambda pair: pair[0])

    @seed(start)
    @settings(max_examples=max(1, number // (2 * OF_EXAMPLE)), deadline=None, database=None)
    @given(pairs)
    def check(given_pairs: list[tuple[str, str]]) -> None:
        wrong.extend(_wrong_of_layers(Path(tempfile.mkdtemp(dir=folder)), given_pairs))

    check()
    return wrong


def _wrong_of_layers(around: Path, pairs: list[tuple[str, str]]) -> list[str]:
    (around / "files").mkdir()
    dataset = CatalogClient(around / "lake").create_dataset("a")
    places = []
    for at, (segment, _) in enumerate(pairs):
        places.append(str(around / "files" / f"s{at}-0.rrd"))
        write_file(Path(places[-1]), segment)
    dataset.register(places, layer_name=[layer for _, layer in pairs], copy=len(pairs[0][0]) % 2 == 0).wait()
    rows = dataset.manifest().to_arrow_table().select(["rerun_segment_id", "rerun_layer_name"]).to_pylist()
    wrong = [] if [tuple(row.values()) for row in rows] == pairs else [f"{pairs} come back as {rows}"]
    for at, (segment, layer) in enumerate(pairs):
        query = urlsplit(dataset.segment_url(segment)).query
        (chunk,) = dataset.segment_store(segment)
        if parse_qs(query, keep_blank_values=True, errors="strict") != {"segment_id": [segment]}:
            wrong.append(f"{segment!r} has the URL {query}")
        if chunk.to_record_batch().to_pydict()["value"] != [[10.0 * at]]:
            wrong.append(f"{segment!r} has the values of another")
        if at % 2:
            dataset.unregister(segments_to_drop=segment, layers_to_drop=layer)
    if dataset.segment_ids() != [segment for segment, _ in pairs[::2]]:
        wrong.append(f"of {pairs} these were dropped: {dataset.segment_ids()}")
    inside = re.compile(r"files/s\d-0\.rrd|lake/catalog/.*|lake/datasets/\w{32}/[a-z]+/[0-9a-f-]+\.\w+")
    paths = [path.relative_to(around).as_posix() for path in around.rglob("*") if path.is_file()]
    wrong += [f"{pairs} makes {path}" for path in paths if not inside.fullmatch(path)]
    shutil.rmtree(around)
    return wrong


def wrong_names(folder: Path, number: int, start: int) -> list[str]:
    """Give about so many names; what is wrong."""
    wrong: list[str] = []
    names = st.one_of(st.text(max_size=6), st.text("abz/\\.:[]_- \0", max_size=8), st.sampled_from(ODD))

    @seed(start)
    @settings(max_examples=max(1, number // OF_EXAMPLE), deadline=None, database=None)
    @given(st.lists(names, min_size=OF_EXAMPLE, max_size=OF_EXAMPLE, unique=True))
    def check(given_names: list[str]) -> None:
        wrong.extend(_wrong_of(Path(tempfile.mkdtemp(dir=folder)), given_names))

    check()
    return wrong


def _wrong_of(around: Path, names: list[str]) -> list[str]:
    client, wrong, taken = CatalogClient(around / "lake"), [], []
    for name in names:
        is_good = 0 < len(name) <= MOST_CHARACTERS_OF_A_NAME and set(name) <= ALLOWED and not name.startswith("__")
        try:
            made = client.create_dataset(name)
        except UsageError as error:
            if is_good:
                wrong.append(f"{name!r} is refused: {error}")
            continue
        taken.append(name)
        if not is_good or made.name != name or client.get_dataset(name) != made:
            wrong.append(f"{name!r} is taken as {made.name!r}")
    if CatalogClient(around / "lake").dataset_names() != sorted(taken):
        wrong.append(f"{taken} come back as {client.dataset_names()}")
    paths = [path.relative_to(around).as_posix() for path in around.rglob("*") if path.is_file()]
    shutil.rmtree(around)
    return wrong + [f"{names} makes {path}" for path in paths if not path.startswith("lake/catalog/versions/0000")]


def main() -> int:
    """The command line; gives its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mutants", type=int, default=2000)
    parser.add_argument("--names", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wrong = wrong_mutants(Path(folder) / "mutants", options.mutants, options.seed)
        wrong += wrong_names(Path(folder), options.names, options.seed)
        wrong += wrong_store_mutants(Path(folder) / "store", options.mutants, options.seed)
        wrong += wrong_layers(Path(folder), options.names, options.seed)
    print("\n".join(wrong[:50]) or f"{options.mutants} mutants and {options.names} names: nothing is wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
