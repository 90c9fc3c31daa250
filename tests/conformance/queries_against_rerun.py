"""The rows of queries beside Rerun's local server, by the rules of Rerun 0.33: values, types, metadata of fields.

    python tests/conformance/queries_against_rerun.py --count 200              # generated datasets alone
    python tests/conformance/queries_against_rerun.py ../shared/data/rrd log.mcap   # beside them, recordings

The server is that of the installed rerun-sdk. Generated datasets are those of ``query_oracle.py`` without clears; every
other one has little in it by which the server is known to differ. Of recordings an RRD is asked as it is, and all of
them as the RRDs that conversion makes of them. Each query is a whole read, with or without filling, given values,
contents, filters of DataFusion, or the selection of a column.

Where answers differ, what is known to differ is told by name, which docs/differences.md explains; anything else is
printed, and ends the script with 1.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import query_oracle
from catalog_against_rerun import converted, inputs_in
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.chunk import ChunkData, Component
from chunkmill.engine.stream import ContentFilter
from datafusion import col, lit
from generated_rrds import CLEAR, tamed, without_clears, write_rrds

EMPTY = "a component that is empty in a part of the dataset"
CLEARS = "clears (not asked)"
NULL_ROWS = "index values of a segment whose range ends in rows without values"
STATIC = "static values: several of a component, beside others, or empty"
NO_VALUES = "index values of segments with static values alone, or with none"
SEGMENTS = "a filter for a segment that filter_segments leaves out"
LOST = "static values that are lost under a filter on the index"
NAMELESS = "an RRD that never names its recording"
NO_RANGE = "index values of which no segment has any"
VIEW = "columns of a view on some segments"

LARGEST = 64 << 20
"""Bytes that the values of a component may take in an answer: a mesh that is repeated in a million rows is left out."""

Key = tuple[str, str]


class Question(NamedTuple):
    """A query: the oracle's arguments, and a filter or the columns that are selected of what it gives."""

    asked: dict[str, Any]
    filters: tuple[Any, ...] = ()
    selected: tuple[str, ...] = ()

    def frame(self, dataset: Any) -> pa.Table:
        """The answer of a dataset of either side."""
        asked, view = self.asked, dataset
        if asked.get("contents") is not None:
            view = view.filter_contents(asked["contents"])
        if asked.get("segments") is not None:
            view = view.filter_segments(asked["segments"])
        given = asked.get("uiv")
        if isinstance(given, dict):
            given = {segment: pa.array(some, pa.int64()) for segment, some in given.items()}
        frame = view.reader(
            asked["index"],
            include_semantically_empty_columns=asked.get("empty", False),
            include_tombstone_columns=asked.get("tomb", False),
            fill_latest_at=asked.get("fill", False),
            using_index_values=pa.array(given, pa.int64()) if isinstance(given, list) else given,
        )
        for one in self.filters:
            frame = frame.filter(one)
        if self.selected:
            frame = frame.select(*(col(f'"{name}"') for name in self.selected))
        return pa.table(frame.to_arrow_table())

    def __str__(self) -> str:
        return f"{self.asked} {[str(one) for one in self.filters]} {list(self.selected)}"


@dataclass
class Facts:
    """What there is in the chunks of a dataset by which the server is known to differ."""

    segments: dict[str, list[ChunkData]]

    def components(self) -> Iterator[tuple[str, ChunkData, Component]]:
        """All components of all chunks, with their segments."""
        for segment, chunks in self.segments.items():
            for data in chunks:
                for component in data.components:
                    yield segment, data, component

    @cached_property
    def partly_empty(self) -> set[Key]:
        """Components that are empty in some chunk, and not in all."""
        found: defaultdict[Key, set[bool]] = defaultdict(set)
        for _, data, component in self.components():
            found[data.entity_path, component.descriptor.component].add(_is_empty(component.values))
        return {key for key, some in found.items() if len(some) == 2}

    @cached_property
    def clears(self) -> bool:
        """Whether there are clears, or empty lists of them."""
        return any(c.descriptor.component == CLEAR for _, _, c in self.components())

    @cached_property
    def odd_static(self) -> set[str]:
        """Entities with a component of which a segment has several static values, or an empty one, or others, too."""
        static: Counter[tuple[str, Key]] = Counter()
        others, odd = set(), set()
        for segment, data, component in self.components():
            key = segment, (data.entity_path, component.descriptor.component)
            if data.timelines:
                others.add(key)
            else:
                static[key] += len(component.values)
                odd |= {data.entity_path} if _is_empty(component.values) or component.values.null_count else set()
        return odd | {key[1][0] for key, count in static.items() if count > 1 or key in others}

    def lacks_events(self, question: Question, shown: ContentFilter) -> bool:
        """Whether a segment has nothing on the index that is shown."""
        asked = question.asked
        static = {
            (segment, data.entity_path, component.descriptor.component)
            for segment, data, component in self.components()
            if not data.timelines and component.values.null_count < len(component.values)
        }
        having = {
            segment
            for segment, data, component in self.components()
            if any(line.name == asked["index"] for line in data.timelines)
            and shown.matches(data.entity_path)
            and component.values.null_count < len(component.values)
            and (asked.get("empty") or not _is_empty(component.values))
            and (segment, data.entity_path, component.descriptor.component) not in static
        }
        return not having.issuperset(asked.get("segments") or self.segments)

    @cached_property
    def has_null_rows(self) -> bool:
        """Whether all components are null in some row."""
        return any(data.timelines and _null_everywhere(data) for chunks in self.segments.values() for data in chunks)

    def names(self, question: Question) -> set[str]:
        """The names of differences that are known, and that can be in the answer to a question."""
        asked, found = question.asked, set()
        contents = asked.get("contents")
        shown = ContentFilter.everything() if contents is None else ContentFilter([contents])
        if not asked.get("empty") and any(shown.matches(entity) for entity, _ in self.partly_empty):
            found.add(EMPTY)
        if any(shown.matches(entity) for entity in self.odd_static):
            found.add(STATIC)
        if "segments" in asked and any("rerun_segment_id" in str(one) for one in question.filters):
            found.add(SEGMENTS)
        if asked.get("uiv") is not None:
            found |= {NO_VALUES} if self.lacks_events(question, shown) else set()
            if self.has_null_rows:
                found.add(NULL_ROWS)
            found.add(NO_RANGE)
        return found


def _null_everywhere(data: ChunkData) -> bool:
    some = np.zeros(data.num_rows, np.bool_)
    for component in data.components:
        some |= np.asarray(component.values.is_valid())
    return not some.all()


def _is_empty(values: pa.ListArray) -> bool:
    return not pc.max(pc.list_value_length(values)).as_py()


# --- questions


def questions(random_: random.Random, facts: Facts, dataset: Any, count: int) -> Iterator[Question]:
    """Questions to a dataset of here, about entities, values and times that it has."""
    segments = dataset.segment_ids()
    columns = dataset.schema().component_columns()
    entities = sorted({column.entity_path for column in columns})
    indexes = [column.name for column in dataset.schema().index_columns()]
    for _ in range(count):
        index = random_.choice([*indexes, *indexes, None])
        asked: dict[str, Any] = {
            "index": index,
            "empty": random_.random() < 0.5,
            "tomb": random_.random() < 0.3,
            "fill": random_.random() < 0.5,
        }
        if entities and random_.random() < 0.4:
            asked["contents"] = " ".join(
                random_.choice(["", "", "-"]) + entity + random_.choice(["", "/**"])
                for entity in random_.sample(entities, min(2, len(entities)))
            ).replace("//", "/")
        if random_.random() < 0.3:
            asked["segments"] = random_.sample(segments, random_.randint(1, len(segments)))
        if index is None:
            yield Question(asked)
            continue
        ticks = times_of(facts, index)
        near = [tick + random_.randint(-1, 1) for tick in random_.sample(ticks, min(4, len(ticks)))]
        if random_.random() < 0.3:
            given = sorted(set(near))
            asked["uiv"] = given if random_.random() < 0.5 else dict.fromkeys([*segments[:-1], "none"], given)
            yield Question(asked)
            continue
        shape = random_.random()
        visible = [column.name for column in columns if not column.is_static and not column.is_tombstone]
        if shape < 0.4 or not near:
            yield Question(asked)
        elif shape < 0.8:
            yield Question(asked, tuple(_filters(random_, dataset, index, near, segments)))
        elif visible and not {"contents", "segments"} & asked.keys():
            yield Question(asked | {"empty": True}, (), ("rerun_segment_id", index, random_.choice(visible)))


def times_of(facts: Facts, index: str) -> list[int]:
    """Times on an index, of any rows."""
    return sorted(
        {
            int(tick)
            for chunks in facts.segments.values()
            for data in chunks
            for line in data.timelines
            if line.name == index
            for tick in line.ticks
        }
    )


def _filters(
    random_: random.Random, dataset: Any, index: str, ticks: Sequence[int], segments: list[str]
) -> Iterator[Any]:
    column = col(f'"{index}"')
    datatype = dataset.arrow_schema().field(index).type
    first, last = (lit(pa.scalar(tick, pa.int64()).cast(datatype)) for tick in (min(ticks), max(ticks)))
    yield random_.choice(
        [
            column >= first,
            column < last,
            column == first,
            (column > first) & (column <= last),
            column.between(first, last),
        ]
    )
    if random_.random() < 0.3:
        yield col("rerun_segment_id") == random_.choice(segments)


# --- answers


@dataclass
class Comparison:
    """How much was compared, what is known to differ, by name, and what else differs."""

    counts: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)
    others: list[str] = field(default_factory=list)

    def compare(self, name: str, question: Question, facts: Facts, ours: Any, theirs: Any) -> None:
        """Ask both sides, and note what differs."""
        if facts.clears:
            self.known[CLEARS] += 1
            return
        names = facts.names(question)
        self.counts["queries"] += 1
        found, error = answered(question, ours)
        expected, refused = answered(question, theirs)
        if found is None or expected is None:
            if found is expected:
                self.counts["refused by both"] += 1
            elif "has no attribute 'chunks'" in (refused or "") and NO_RANGE in names:
                self.known[NO_RANGE] += 1
            else:
                self.note(name, question, f"here {error or 'an answer'}, there {refused or 'an answer'}")
            return
        told = [*columns_that_differ(found, expected, facts, question, self.known)]
        told += rows_that_differ(found, expected, question, self.known)
        names -= {NO_RANGE}
        self.counts["rows"] += expected.num_rows
        if not told:
            self.counts["equal"] += 1
        elif names:
            self.known[" / ".join(sorted(names))] += 1
        else:
            self.note(name, question, "; ".join(told))

    def note(self, name: str, question: Question, what: str) -> None:
        """Note a difference that nobody knows."""
        self.others.append(f"{name}: {question}: {what[:600]}")
        print(self.others[-1], flush=True)


def answered(question: Question, dataset: Any) -> tuple[pa.Table | None, str | None]:
    """The answer, or the text of the error."""
    try:
        return question.frame(dataset), None
    except Exception as error:  # noqa: BLE001 (its text is told)
        return None, f"{type(error).__name__}: {error}"


def columns_that_differ(
    ours: pa.Table, theirs: pa.Table, facts: Facts, question: Question, known: Counter[str]
) -> Iterator[str]:
    """What columns are here or there alone, or of another type, or with other metadata."""
    for name in sorted({*ours.column_names, *theirs.column_names}):
        if name not in ours.column_names:
            if "segments" in question.asked and theirs[name].null_count == theirs.num_rows:
                known[VIEW] += 1
            else:
                yield f"column {name} is there alone"
        elif name not in theirs.column_names:
            yield f"column {name} is here alone"
        else:
            here, there = (_field(table.schema.field(name)) for table in (ours, theirs))
            about = there[1]
            if (about.get("rerun:entity_path"), about.get("rerun:component")) in facts.partly_empty:
                here[1].pop("rerun:is_semantically_empty", None), about.pop("rerun:is_semantically_empty", None)
            if here != there:
                yield f"field {name} is {here} here, and {there} there"


def _field(field_: pa.Field) -> tuple[pa.DataType, dict[str, str]]:
    return field_.type, {key.decode(): value.decode() for key, value in (field_.metadata or {}).items()}


def rows_that_differ(ours: pa.Table, theirs: pa.Table, question: Question, known: Counter[str]) -> Iterator[str]:
    """Where the rows are others, or other values in them."""
    keys = [name for name in ("rerun_segment_id", question.asked["index"]) if name in ours.column_names]
    names = [name for name in ours.column_names if name in theirs.column_names]
    if ours.num_rows != theirs.num_rows:
        yield f"{ours.num_rows} rows here, {theirs.num_rows} there"
        return
    one, other = (table.select(names).sort_by([(key, "ascending") for key in keys]) for table in (ours, theirs))
    lost = 0
    for name in names:
        if one[name].equals(other[name]):
            continue
        pairs = list(zip(one[name].to_pylist(), other[name].to_pylist(), strict=True))
        if question.filters and (one.schema.field(name).metadata or {}).get(b"rerun:is_static"):
            lost += any(there is None for _, there in pairs)
            pairs = [pair for pair in pairs if pair[1] is not None]
        at = next((i for i, (here, there) in enumerate(pairs) if repr(here) != repr(there)), None)
        if at is not None:
            yield f"row {at} of {name} is {str(pairs[at][0])[:100]} here, and {str(pairs[at][1])[:100]} there"
    known[LOST] += lost > 0


# --- datasets


@dataclass
class Sides:
    """A catalog here by the rules of Rerun 0.33, and one of Rerun's server."""

    ours: Any
    theirs: Any

    def datasets(self, name: str, paths: list[Path], layers: list[str]) -> tuple[Any, Any]:
        """A dataset of each with some files."""
        one, other = self.ours.create_dataset(name), self.theirs.create_dataset(name)
        other.register([path.as_uri() for path in paths], layer_name=layers).wait()
        one.register([str(path) for path in paths], layer_name=layers, executor="inline").wait()
        return one, other


def compare_generated(seed: int, sides: Sides, folder: Path, into: Comparison, queries: int = 6) -> None:
    """Compare answers over one generated dataset."""
    random_ = random.Random(seed)
    recordings = without_clears(query_oracle.generated(random_))
    recordings = tamed(recordings) if seed % 2 else recordings
    paths, layers, chunks = write_rrds(recordings, folder / f"generated-{seed}")
    facts = Facts(chunks)
    ours, theirs = sides.datasets(f"generated-{seed}", paths, layers)
    into.counts["generated datasets"] += 1
    for question in questions(random_, facts, ours, queries):
        into.compare(f"seed {seed}", question, facts, ours, theirs)


def compare_recording(name: str, path: Path, sides: Sides, into: Comparison, queries: int = 8) -> None:
    """Compare answers over an RRD."""
    try:
        ours, theirs = sides.datasets("".join(c if c.isalnum() else "-" for c in name), [path], ["base"])
    except Exception as error:  # noqa: BLE001 (catalog_against_rerun.py compares what is refused)
        into.counts["refused"] += 1
        print(f"{name} is not compared: {str(error).partition(chr(10))[0][:150]}", flush=True)
        return
    if not theirs.segment_ids():
        into.known[NAMELESS] += 1
        return
    (segment,) = ours.segment_ids()
    facts = Facts({segment: [chunk.data for chunk in ours.segment_store(segment)]})
    into.counts["recordings"] += 1
    random_ = random.Random(len(facts.segments[segment]))
    large = too_large(facts)
    for question in questions(random_, facts, ours, queries):
        contents = " ".join([question.asked.get("contents") or "/**", *(f"-{entity}" for entity in sorted(large))])
        asked = {**question.asked, **({"contents": contents} if large else {})}
        into.compare(name, question._replace(asked=asked), facts, ours, theirs)


def too_large(facts: Facts) -> set[str]:
    """Entities with values that would fill the memory if each row had them."""
    chunks = [data for some in facts.segments.values() for data in some]
    rows = sum(data.num_rows for data in chunks if data.timelines)
    found = set()
    for data in chunks:
        size = sum(component.values.nbytes for component in data.components) // max(1, data.num_rows)
        if size * rows > LARGEST:
            found.add(data.entity_path)
    return found


def main(paths: Sequence[Path], count: int, seed: int = 0) -> Comparison:
    """Compare so many generated datasets, and the recordings that paths mean."""
    from rerun.server import Server

    found = Comparison()
    with tempfile.TemporaryDirectory() as place, Server(host="127.0.0.1") as server, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(place)
        sides = Sides(CatalogClient(folder / "lake", semantics="rerun-0.33"), server.client())
        for number in range(seed, seed + count):
            compare_generated(number, sides, folder, found)
        for number, path in enumerate(inputs_in(paths)):
            if path.suffix == ".rrd":
                compare_recording(f"{number} {path.name}", path, sides, found)
            try:
                made = converted(path, folder)
            except Exception:  # noqa: BLE001 (what cannot be converted is no recording)
                found.counts["refused"] += 1
                continue
            compare_recording(f"{number} {path.name} (converted)", made, sides, found)
            made.unlink()
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--count", type=int, default=200, help="generated datasets")
    parser.add_argument("--seed", type=int, default=0, help="of the first one")
    options = parser.parse_args()
    done = main(options.paths, options.count, options.seed)
    print(dict(done.counts), "known to differ:", dict(done.known), f"others: {len(done.others)}")
    sys.exit(1 if done.others else 0)
