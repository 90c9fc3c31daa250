"""What a catalog tells of real recordings, beside Rerun's local server: segments, columns, layers, chunks, ranges.

    python tests/conformance/catalog_against_rerun.py                    # all of ../shared/data
    python tests/conformance/catalog_against_rerun.py drive.rrd log.mcap

Each RRD is registered with the server of the installed rerun-sdk, and here where it lies and by copy. Every input
(MCAP, Parquet and LeRobot, too) is registered here by copy, and with the server the RRD that conversion makes of it.
Each has a dataset of its own, as recordings of different robots do not fit together.

Prints what differs, file by file, and the figures. ``KNOWN`` is what docs/differences.md tells of; anything else ends
the script with 1.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.chunk import ComponentColumnDescriptor
from chunkmill.engine.errors import ChunkmillError
from chunkmill.engine.inputs import SourceOptions, search_inputs, stores_of
from chunkmill.engine.rrd import RrdFile
from chunkmill.engine.stream import write_stores
from chunkmill.readers import STORE, stem_of

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

OWN = {
    "rerun_storage_url",
    "rerun_storage_urls",
    "rerun_last_updated_at",
    "rerun_registration_time",
    "rerun_schema_sha256",
}
"""Columns whose values are those of one catalog."""

FOOTERLESS = "without a footer"

KNOWN = {
    rf"{FOOTERLESS}.*: rerun_(num_chunks|size_bytes) is": "an RRD without a footer",
    rf"{FOOTERLESS}.* is taken here alone: .*chunk_num_rows": "an RRD with a footer of Rerun 0.28's drafts",
    rf"min_text_log.rrd \({FOOTERLESS}": "an RRD that never names its recording",
    r"column_chunk_key_value_metadata.parquet \(converted\)": "a recording without chunks",
    r"pq_odd.parquet \(converted\)": "a column without a name",
    r"field rerun_(layer_names|storage_urls) is .*list<item": "types of rerun_layer_names",
    r"manifest: field rerun_(num_chunks|size_bytes|schema_sha256) is": "types of rerun_layer_names",
}
"""Differences that docs/differences.md tells of, by what is printed, and the case there."""

ID_BYTES = 0.05
"""The part by which the compressed chunks of a file that is read twice may differ: ids are made anew."""


@dataclass
class Comparison:
    """The differences that were found, and how much was compared."""

    counts: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def note(self, name: str, what: str) -> None:
        """Add a difference."""
        self.differences.append(f"{name}: {what}")
        if self.differences[-1:] == self.unknown[-1:]:
            print(self.differences[-1], flush=True)

    @property
    def unknown(self) -> list[str]:
        """Differences that nobody has documented."""
        return [text for text in self.differences if not any(re.search(known, text) for known in KNOWN)]


def told(dataset: Any) -> dict[str, Any]:
    """What a dataset tells, as facts by their names."""
    facts: dict[str, Any] = {"segment ids": sorted(dataset.segment_ids())}
    for column in dataset.arrow_schema():
        facts[f"column {column.name}"] = _field(column)
    frames = {
        "segment table": dataset.segment_table(),
        "manifest": dataset.manifest(),
        "ranges": dataset.get_index_ranges(),
    }
    for table, frame in frames.items():
        found = pa.table(frame.to_arrow_table())
        found = found.rename_columns([_name(column) for column in found.schema])
        facts[f"{table}: columns"] = sorted(found.schema.names)
        for column in found.schema:
            facts[f"{table}: field {column.name}"] = _field(column)
        keys = ["rerun_segment_id", *(["rerun_layer_name"] if table == "manifest" else [])]
        for row in found.to_pylist():
            where = " ".join(row[key] for key in keys)
            facts |= {f"{table}: {where}: {name}": value for name, value in row.items() if name not in OWN}
    return facts


def _name(column: pa.Field) -> str:
    """The name of a column; of a property the one that it has in the schema of the dataset, too."""
    about = {key.decode(): value.decode() for key, value in (column.metadata or {}).items()}
    path, component = about.get("rerun:entity_path"), about.get("rerun:component")
    return column.name if path is None or component is None else ComponentColumnDescriptor(path, component).name


def _field(column: pa.Field) -> tuple[str, bool, dict[bytes, bytes]]:
    return str(column.type), column.nullable, dict(sorted((column.metadata or {}).items()))


def _is_about(one: Any, other: Any) -> bool:
    return isinstance(one, int) and isinstance(other, int) and abs(one - other) <= ID_BYTES * other


def compare(name: str, ours: dict[str, Any], theirs: dict[str, Any], into: Comparison, *, loosely: bool) -> None:
    """Note what two datasets tell otherwise; ``loosely`` where sizes need not be the same to a byte."""
    into.counts["facts"] += len(theirs)
    for fact in sorted({*ours, *theirs}):
        if fact not in theirs:
            into.note(name, f"{fact} is here alone: {ours[fact]}")
        elif fact not in ours:
            into.note(name, f"{fact} is not here: {theirs[fact]}")
        elif ours[fact] != theirs[fact] and not (
            loosely and fact.endswith("size_bytes") and _is_about(ours[fact], theirs[fact])
        ):
            into.note(name, f"{fact} is {ours[fact]} here, and {theirs[fact]} there")


@dataclass
class Sides:
    """A catalog here, and one of Rerun's server."""

    ours: Any
    theirs: Any

    def compare(self, name: str, path: Path, ways: dict[str, tuple[Path, dict[str, Any]]], into: Comparison) -> None:
        """Register a file there, and here in some ways, and note what the datasets tell otherwise."""
        dataset, refused = registered(
            self.theirs, "".join(c if c.isalnum() and c.isascii() else "-" for c in name), path
        )
        for way, (mine, options) in ways.items():
            called = f"{name} {way}"
            found, error = registered(self.ours, f"{len(self.ours.dataset_names())}", mine, **options)
            if (error is None) != (refused is None):
                into.note(
                    called, f"is {'taken' if error is None else 'refused'} here alone: {_short(error or refused)}"
                )
            elif error is not None:
                into.counts["refused by both"] += 1
            else:
                into.counts[f"compared {way}"] += 1
                compare(called, told(found), told(dataset), into, loosely=mine.suffix != ".rrd")


def _short(text: str | None) -> str:
    return (text or "").partition("Details")[0].partition("\n- ")[0].replace("\n", " ")


def registered(client: Any, name: str, path: Path, **options: Any) -> tuple[Any, str | None]:
    """A dataset with a file, or the error for which it has none."""
    dataset = client.create_dataset(name)
    uri = path.absolute().as_uri()
    try:
        dataset.register(uri, **options).wait()
    except Exception as error:  # noqa: BLE001 (its text is compared)
        return dataset, str(error)
    return dataset, None


def converted(path: Path, folder: Path) -> Path:
    """The RRD that conversion makes of an input of another format, with the ids that registration gives."""
    found = next(iter(search_inputs(path)))
    row = found.dataset
    episodes = () if row is None or row is STORE else row.open(path).episodes()
    name, options = stem_of(path.name), SourceOptions(executor="inline")
    if not episodes:
        stores = stores_of(path, name, options)
    else:
        stores = [
            one for episode in episodes for one in stores_of(path, f"{name}-{episode.name}", options, episode.number)
        ]
    target = folder / f"{name}.rrd"
    write_stores(target, stores, executor="inline")
    return target


def compare_file(name: str, path: Path, sides: Sides, folder: Path, into: Comparison) -> None:
    """Register a file here and there, and compare what the datasets tell.

    An RRD is compared as it is, and everything with the RRD that conversion makes of it, which has a footer.
    """
    copy = {"copy": True, "executor": "inline"}
    if path.suffix == ".rrd":
        what = "" if _has_footer(path) else f" ({FOOTERLESS})"
        sides.compare(f"{name}{what}", path, {"in place": (path, {}), "by copy": (path, copy)}, into)
    try:
        there = converted(path, folder)
    except Exception:  # noqa: BLE001 (registration has to refuse it, too)
        _, error = registered(sides.ours, f"{len(sides.ours.dataset_names())}", path, **copy)
        if error is None:
            into.note(name, "is taken, and cannot be converted")
        into.counts["refused"] += 1
        return
    sides.compare(f"{name} (converted)", there, {"in place": (there, {}), "by copy": (path, copy)}, into)
    there.unlink()


def _has_footer(path: Path) -> bool:
    try:
        return RrdFile(path).has_footer
    except ChunkmillError:
        return False


def inputs_in(paths: Iterable[Path]) -> Iterator[Path]:
    """The inputs that paths mean, but for blueprints and the files that test containers of MCAP."""
    for path in paths:
        for found in search_inputs(path):
            if found.path.suffix != ".rbl" and "conformance" not in found.below.parts:
                yield Path(found.path)


def main(paths: list[Path]) -> Comparison:
    """Compare all inputs that the paths mean."""
    from rerun.server import Server

    found = Comparison()
    with tempfile.TemporaryDirectory() as folder, Server(host="127.0.0.1") as server, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs = CatalogClient(Path(folder) / "lake"), server.client()
        for number, path in enumerate(inputs_in(paths)):
            compare_file(f"{number} {path.name}", path, Sides(ours, theirs), Path(folder), found)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, default=[DATA])
    done = main(parser.parse_args().paths)
    known = len(done.differences) - len(done.unknown)
    print(dict(done.counts), f"{known} documented differences, {len(done.unknown)} others")
    sys.exit(1 if done.unknown else 0)
