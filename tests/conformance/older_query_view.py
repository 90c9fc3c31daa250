"""The query view of 0.27 beside the reference's oracle: calls of its methods, in any order, over generated datasets.

``python tests/conformance/older_query_view.py --count 300 --seed 0`` makes so many datasets, of files in a catalog,
asks 10 calls of each, and says how many rows were equal. The oracle knows the rules of rows and values; what filters
leave of them is said here once more.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from chunkmill.engine.catalog import v0_27
from chunkmill.engine.chunk import Chunk
from chunkmill.engine.stream import LazyChunkStream
from query_oracle import Recording, Row, canonical, chunk_of, generated, oracle, plain

TOMBSTONE = "Clear:is_recursive"
_CONTENTS = ("/**", "/**", "/**", "/w", "/w/**", "/w/a /z", "/** -/w/a/**", "/__properties/** /**", "/z/** /w/b")
_KEYS = ("/**", "/**", "/w/**", "/w", "/w/a", "/w/a/**", "/z", "/__properties/**")


def dataset_of(client: v0_27.CatalogClient, name: str, recordings: list[Recording], folder: Path) -> v0_27.DatasetEntry:
    """A dataset of these recordings, each in a file of its own."""
    dataset = client.create_dataset(name)
    uris = []
    for number, recording in enumerate(recordings):
        path = folder / f"{name}-{number}.rrd"
        chunks = [Chunk.from_data(chunk_of(chunk, at + 100 * number)) for at, chunk in enumerate(recording["chunks"])]
        stream = LazyChunkStream.from_iter(chunks)
        stream.write_rrd(path, application_id="tests", recording_id=recording["segment"], executor="inline")
        uris.append(path.as_uri())
    dataset.register_batch(uris, recording_layers=[recording["layer"] for recording in recordings]).wait(60)
    return dataset


# --- calls

Step = tuple[str, tuple[Any, ...]]


def steps(random_: random.Random, index: str | None, recordings: list[Recording]) -> list[Step]:
    """Methods of a view, with arguments."""
    keys = sorted(oracle().load(recordings)[0])
    segments = sorted({recording["segment"] for recording in recordings})
    columns = [f"{entity}:{component}" for _, entity, component in keys] + ["/none:value"]

    def some(least: int, most: int) -> Any:
        return np.array(random_.sample(range(-5, 11), random_.randint(least, most)), dtype=np.int64)

    made: list[Any] = [
        lambda: ("fill_latest_at", ()),
        lambda: ("fill_latest_at", ()),
        lambda: ("filter_is_not_null", (random_.choice(columns),)),
        lambda: ("filter_is_not_null", (random_.choice(columns),)),
        lambda: ("filter_index_values", (some(6, 14),)),
        lambda: ("filter_partition_id", tuple(random_.sample(segments, random_.randint(1, len(segments))))),
    ]
    if index is not None:
        made += 2 * [lambda: ("filter_range_sequence", (random_.randint(-5, 3), random_.randint(-2, 10)))]
        made += [lambda: ("filter_range_nanos", (random_.randint(-5, 3), random_.randint(-2, 10)))]
        made += [lambda: ("filter_range_secs", (random_.randint(-5, 3) / 1e9, random_.randint(-2, 10) / 1e9))]
    if random_.random() < 0.25:
        made += 2 * [lambda: ("using_index_values", (some(0, 6),))]
    return [random_.choice(made)() for _ in range(random_.randint(0, 5))]


def arguments_of(random_: random.Random, indexes: list[str]) -> dict[str, Any]:
    """Arguments of ``dataframe_query_view``."""
    has_clears = random_.random() < 0.5
    names = ["value", "other", "Points3D:colors"]
    contents: Any = random_.choice(_CONTENTS)
    if random_.random() < 0.5:
        keys = random_.sample(_KEYS, random_.randint(1, 3))
        contents = {
            key: [*random_.sample(names, random_.choice([0, 1, 2, 3, 3, 3])), *([TOMBSTONE] if has_clears else [])]
            for key in keys
        }
    return {
        "index": random_.choice([*indexes, *indexes, *indexes, None, "none"]),
        "contents": contents,
        "include_semantically_empty_columns": random_.random() < 0.3,
        "include_tombstone_columns": random_.random() < 0.3,
    }


# --- what is expected


def renamed(recordings: list[Recording], contents: dict[str, list[str]]) -> list[Recording]:
    """Recordings whose components are called otherwise where contents by expression leave them out, but for clears."""
    rules = [(oracle().make_filter(key), components) for key, components in contents.items()]

    def name_of(chunk: dict[str, Any], column: dict[str, Any]) -> str:
        named: list[str] = []
        for matches, components in rules:
            named = components if matches(chunk["entity_path"]) else named
        is_kept = column["metadata"]["rerun:kind"] != "data" or column["name"] in (TOMBSTONE, *named)
        return column["name"] if is_kept else f"left out: {column['name']}"

    def rename(chunk: dict[str, Any]) -> dict[str, Any]:
        names = {column["name"]: name_of(chunk, column) for column in chunk["columns"]}
        columns = [{**column, "name": names[column["name"]]} for column in chunk["columns"]]
        return {**chunk, "columns": columns, "rows": [{names[n]: v for n, v in row.items()} for row in chunk["rows"]]}

    return [{**recording, "chunks": [rename(chunk) for chunk in recording["chunks"]]} for recording in recordings]


def expected(recordings: list[Recording], arguments: dict[str, Any], taken: list[Step], rules: str) -> list[Row]:
    """The rows of a view after steps."""
    indexes, index, contents = oracle().load(recordings)[2], arguments["index"], arguments["contents"]
    if index is not None and index not in indexes:
        return []
    last: dict[str, tuple[Any, ...]] = {}
    for name, values in taken:
        kind = "range" if name.startswith("filter_range") else name
        last[kind] = tuple(round(v * 1e9) for v in values) if name == "filter_range_secs" else values
    asked: dict[str, Any] = {
        "index": index,
        "contents": contents,
        "segments": last.get("filter_partition_id"),
        "empty": arguments["include_semantically_empty_columns"],
        "tomb": arguments["include_tombstone_columns"],
        "clear_fill": rules,
    }
    if isinstance(contents, dict):
        recordings = renamed(recordings, contents)
        asked |= {"contents": " ".join(contents), "components": {"value", "other", "Points3D:colors", TOMBSTONE}}
        asked["tomb"] &= any(TOMBSTONE in components for components in contents.values())
    given = last.get("using_index_values")
    if given is not None and index is not None:
        asked["uiv"] = given[0].tolist()
    rows: list[Row] = oracle().evaluate(recordings, fill="fill_latest_at" in last, **asked)
    if index is None or given is not None:
        return rows
    if "filter_is_not_null" in last:
        entity, _, component = last["filter_is_not_null"][0].partition(":")
        name, static = oracle().colname(entity, component), oracle().load(recordings)[1]
        there = {
            (row["rerun_segment_id"], row[index])
            for row in oracle().evaluate(recordings, **asked)
            if row.get(name) is not None and not static[row["rerun_segment_id"], entity, component]
        }
        rows = [row for row in rows if (row["rerun_segment_id"], row[index]) in there]
    if "filter_index_values" in last:
        rows = [row for row in rows if row[index] in last["filter_index_values"][0]]
    if "range" in last:
        rows = [row for row in rows if last["range"][0] <= row[index] <= last["range"][1]]
    return rows


# --- both


def answered(dataset: v0_27.DatasetEntry, arguments: dict[str, Any], taken: list[Step], *, stream: bool) -> pa.Table:
    """The rows of a view after steps, from the catalog."""
    view = dataset.dataframe_query_view(**arguments)
    for name, values in taken:
        view = getattr(view, name)(*values)
    found: pa.Table = view.to_arrow_reader().read_all() if stream else view.df().to_arrow_table()
    found.validate(full=True)
    return found


def compared(seed: int, folder: Path, calls: int = 10) -> int:
    """Compare the answers over one generated dataset; gives the number of rows. Raises ``AssertionError``."""
    random_ = random.Random(seed)
    recordings, count = generated(random_), 0
    indexes, segments = oracle().load(recordings)[2], sorted({recording["segment"] for recording in recordings})
    lake = folder / str(seed)
    client = v0_27.CatalogClient(lake)
    dataset_of(client, "drives", recordings, folder)
    for number in range(calls):
        arguments, preset = arguments_of(random_, indexes), random_.choice(["contract", "rerun-0.33"])
        taken = steps(random_, arguments["index"], recordings)
        rows = expected(recordings, arguments, taken, {"contract": "shadow"}.get(preset, "resurrect"))
        dataset = v0_27.CatalogClient(lake, semantics=preset).get_dataset(name="drives")
        table = answered(dataset, arguments, taken, stream=number % 2 == 0)
        table = table.rename_columns(["rerun_segment_id", *table.column_names[1:]])
        found = plain(table)
        told = f"seed {seed}, call {number}: {arguments}, then {taken}, by {preset}"
        assert canonical(found) == canonical(rows), told
        for segment in segments if arguments["index"] is not None else ():
            at = [row[arguments["index"]] for row in found if row["rerun_segment_id"] == segment]
            assert at == sorted(at), f"{told}: the order of rows"
        count += len(found)
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="datasets")
    parser.add_argument("--seed", type=int, default=0, help="of the first one")
    arguments = parser.parse_args()
    rows = 0
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        with tempfile.TemporaryDirectory() as folder:
            rows += compared(seed, Path(folder))
    print(json.dumps({"datasets": arguments.count, "calls": 10 * arguments.count, "rows": rows, "differ": []}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
