"""Ask a served lake and Rerun's own server by the real SDK, call by call, and compare what comes back.

    python tests/conformance/sdk_calls.py --server "chunkmill serve LAKE --port {port}" drive.rrd folder/

Run it by the interpreter of an environment with the rerun-sdk that is to be the client; it does not import chunkmill.
``--peer`` is the command of Rerun's server, by default that of the same environment. Every recording is registered in
a dataset of its own, there and here. Answers are compared by schema and rows, but for ids, places and times of
registration, which are those of one catalog.

Prints each difference, and ends with 1 where there is one that ``KNOWN`` does not have.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from rerun.catalog import CatalogClient
from served_tests import Served

OWN = (
    "rerun_storage_url",
    "rerun_storage_urls",
    "rerun_last_updated_at",
    "rerun_registration_time",
    "rerun_schema_sha256",
    "rerun.controls.RowId",
)
"""Columns whose values are those of one catalog."""

FOOTERLESS = "without a footer"

KNOWN = (
    rf"{FOOTERLESS}.*: (segment table|manifest|one segment): rerun_(num_chunks|size_bytes) is",
    rf"{FOOTERLESS}.*: chunks: ",
    rf"{FOOTERLESS}.*: refused: None here",
    r"min_text_log.rrd.*: segments differ",
    r"rerun__file[1-6].rrd: refused: None here",
)
"""Differences that docs/differences.md tells of: RRDs without a footer, or with one of Rerun 0.28's drafts."""

FEW = 3


def answers(dataset: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The calls of a dataset, by what they are called here."""
    segment = dataset.segment_ids()[0]
    view = dataset.filter_segments([segment])
    yield "segment ids", lambda: sorted(dataset.segment_ids())
    yield "schema", lambda: dataset.arrow_schema()
    yield "segment table", lambda: dataset.segment_table()
    yield "manifest", lambda: dataset.manifest()
    yield "ranges", lambda: dataset.get_index_ranges()
    yield "one segment", lambda: view.segment_table()
    yield "its schema", lambda: view.arrow_schema()
    yield "static", lambda: dataset.reader(index=None)
    yield "chunks", lambda: chunks_of(dataset.segment_store(segment))
    for index in indexes_of(dataset):
        yield f"rows by {index}", lambda index=index: dataset.reader(index=index)
        yield f"filled by {index}", lambda index=index: dataset.reader(index=index, fill_latest_at=True)
        yield f"count by {index}", lambda index=index: dataset.reader(index=index).count()
        yield f"of one entity by {index}", lambda index=index: one_entity(dataset).reader(index=index)
        yield (
            f"at values of {index}",
            lambda index=index: dataset.reader(
                index=index, using_index_values={segment: some_values(dataset, index)}, fill_latest_at=True
            ),
        )


def indexes_of(dataset: Any) -> list[str]:
    """The names of all indexes, sorted."""
    return sorted(column.name for column in dataset.schema().index_columns())


def one_entity(dataset: Any) -> Any:
    """The view of the first entity, by its path."""
    paths = sorted({column.entity_path for column in dataset.schema().component_columns()})
    return dataset.filter_contents([next((path for path in paths if "__" not in path), paths[0])])


def some_values(dataset: Any, index: str) -> Any:
    """A few values of an index that are there, as numpy has them."""
    column = pa.table(dataset.reader(index=index).select(index).to_arrow_table())[index].drop_null().unique().sort()
    return column[:: max(1, len(column) // FEW)].to_numpy()


def chunks_of(store: Any) -> list[str]:
    """The chunks of a store, as text without ids."""
    return sorted(_of_chunk(chunk.to_record_batch()) for chunk in store.stream().to_chunks())


def _of_chunk(batch: pa.RecordBatch) -> str:
    path = batch.schema.metadata[b"rerun:entity_path"].decode()
    columns = [(field.name, _told(field), batch[field.name].to_pylist()) for field in batch.schema]
    return repr((path, [column for column in columns if column[0] not in OWN]))


def facts_of(answer: Any) -> dict[str, Any]:
    """An answer as facts by their names: of a frame its fields, and the values of each column."""
    if isinstance(answer, pa.Schema):
        return {f"field {field.name}": _told(field) for field in answer}
    if not hasattr(answer, "to_arrow_table"):
        return {"": answer}
    table = pa.table(answer.to_arrow_table())
    facts: dict[str, Any] = {f"field {field.name}": _told(field) for field in table.schema}
    columns = {name: table[name].to_pylist() for name in sorted(table.schema.names) if name not in OWN}
    first = [name for name in ("rerun_segment_id", "rerun_layer_name") if name in columns]
    order = sorted(range(len(table)), key=lambda row: [repr(columns[name][row]) for name in (*first, *columns)])
    facts["rows"] = len(table)
    return facts | {name: [repr(values[row]) for row in order] for name, values in columns.items()}


def _told(field: pa.Field) -> tuple[str, dict[bytes, bytes]]:
    return str(field.type), dict(sorted((field.metadata or {}).items()))


def answered(call: Callable[[], Any]) -> dict[str, Any]:
    """The facts of an answer, or the kind of the error."""
    try:
        return facts_of(call())
    except Exception as error:  # noqa: BLE001 (it is compared)
        return {"error": type(error).__name__}


def differences(name: str, ours: Any, theirs: Any) -> Iterator[str]:
    """What two datasets of one recording answer otherwise."""
    for (call, mine), (_, other) in zip(answers(ours), answers(theirs), strict=True):
        here, there = answered(mine), answered(other)
        for fact in sorted({*here, *there}):
            if here.get(fact) != there.get(fact):
                yield f"{name}: {call}: {fact} is {str(here.get(fact))[:300]} here, and {str(there.get(fact))[:300]}"


def has_footer(path: Path) -> bool:
    """Whether an RRD ends with the frame of a footer."""
    return b"RRF2FOOT" in path.read_bytes()[-32:]


def registered(client: Any, name: str, path: Path) -> tuple[Any, str | None]:
    """A dataset with a file, or the kind of the error for which it has none."""
    dataset = client.create_dataset(name)
    try:
        dataset.register([path.absolute().as_uri()]).wait()
    except Exception as error:  # noqa: BLE001 (it is compared)
        return dataset, type(error).__name__
    return dataset, None


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--server", required=True)
    parser.add_argument(
        "--peer", default=f"{Path(sys.executable).parent}/rerun server --host 127.0.0.1 --port {{port}}"
    )
    options = parser.parse_args()
    files = [file for path in options.paths for file in (sorted(path.rglob("*.rrd")) if path.is_dir() else [path])]
    sides = [
        Served(command, Path.cwd(), f"sdk_calls_{at}.log") for at, command in enumerate((options.server, options.peer))
    ]
    unknown = compared = 0
    try:
        ours, theirs = (CatalogClient(f"rerun+http://127.0.0.1:{side.port}") for side in sides)
        for number, path in enumerate(files):
            name = path.name if has_footer(path) else f"{path.name} ({FOOTERLESS})"
            (mine, here), (other, there) = (registered(side, f"d{number}", path) for side in (ours, theirs))
            if here is not None or there is not None:
                found = [] if (here is None) == (there is None) else [f"{name}: refused: {here} here, and {there}"]
            elif not other.segment_ids() or not mine.segment_ids():
                found = [] if mine.segment_ids() == other.segment_ids() else [f"{name}: segments differ"]
            else:
                found = list(differences(name, mine, other))
                compared += 1
            for text in found:
                is_known = any(re.search(known, text) for known in KNOWN)
                unknown += not is_known
                print("known:" if is_known else "", text, flush=True)
    finally:
        for side in sides:
            side.kill()
    print(f"{len(files)} files, {compared} compared, {unknown} unknown differences")
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
