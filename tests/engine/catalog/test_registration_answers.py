"""Every answer of Rerun's server about registration, schemas and segments is ours too, or one that differs on purpose.

The answers are those of ``../shared/golden/query/errors_0.33.1.json``, whose calls are made in their order here. Where
it is at hand each text below is compared with it, and each of its rows has to be here or in ``test_errors.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chunk_making import made
from chunkmill.engine import Chunk, LazyChunkStream
from chunkmill.engine.catalog import (
    AlreadyExistsError,
    CatalogClient,
    ComponentColumnSelector,
    DatasetEntry,
    IndexColumnDescriptor,
    IndexColumnSelector,
    NotFoundError,
    RegistrationHandle,
)
from chunkmill.engine.chunk import ComponentDescriptor
from places import SHARED

GOLDEN = SHARED / "golden" / "query" / "errors_0.33.1.json"
INT, FLOAT = pa.list_(pa.int64()), pa.list_(pa.float64())


class World:
    """The files that were registered, and an empty dataset for them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ds: DatasetEntry = CatalogClient(folder / "lake").create_dataset("ds")
        (folder / "pfx").mkdir()
        (folder / "empty").mkdir()
        self.junk = folder / "junk.rrd"
        self.junk.write_bytes(b"junk")
        for name, segment in (("r1", "segA"), ("r1b", "segA"), ("ok", "segZ"), ("pfx/p1", "p1"), ("pfx/p2", "p2")):
            self.write(name, segment)
        self.write("r2", "segB", datatype=FLOAT, value=(1.0,))
        self.write("r3", "segC", times=pa.timestamp("ns"))
        self.write("r4", "segD", component=ComponentDescriptor("value", "arch.X"))
        self.write("r5", "segE", component=ComponentDescriptor("value", "arch.X", "ctype.X"))
        self.handle: RegistrationHandle

    def write(
        self,
        name: str,
        segment: str,
        *,
        component: ComponentDescriptor | None = None,
        times: pa.DataType | None = None,
        datatype: pa.DataType = INT,
        value: tuple[float, ...] = (1,),
    ) -> None:
        component = component or ComponentDescriptor("value")
        column = pa.array([list(value)], datatype)
        chunks = [Chunk.build("/a", {"frame": pa.array([1], times or pa.int64())}, [(component, column)])]
        if name == "r1b":
            chunks.append(made([1], ["value"], ["frame"], INT, (2,), "/q"))
        LazyChunkStream.from_iter(chunks).write_rrd(
            self.folder / f"{name}.rrd", application_id="tests", recording_id=segment, executor="inline"
        )

    def register(self, *names: str, **options: Any) -> RegistrationHandle:
        self.handle = self.ds.register([(self.folder / f"{name}.rrd").as_uri() for name in names], **options)
        return self.handle

    def results(self) -> list[tuple[str | None, str]]:
        return [
            (r.segment_id, (r.error or "").partition("rrd: ")[2].partition(". ")[0])
            for r in self.handle.iter_results(60)
        ]

    def layers(self) -> list[Any]:
        rows = self.ds.segment_table().to_arrow_table().to_pylist()
        return [(row["rerun_segment_id"], row["rerun_layer_names"]) for row in rows]

    def replaced(self, text: str) -> str:
        return text.replace(str(self.folder), "scratch")


@dataclass(frozen=True)
class Fails:
    """The class of an error, and a part of its text. ``as_there``: whether the recorded answer has both."""

    kind: type[Exception]
    text: str
    as_there: bool = True


@dataclass(frozen=True)
class Differs:
    """What comes of a call that Rerun answers otherwise; ``docs/differences.md`` has the case."""

    value: Any


CONFLICT = "schema incompatibility on segment '{}', layer 'base': Schema error: Fail to merge schema field '{}'"
FLOAT_TO_INT = " because the from data_type = Float64 does not equal Int64"
COLUMN = "Column name: /a:value\n\tEntity path: /a\n\tArchetype: arch.X\n\tComponent type: ctype.X\n\tComponent: value"
COLUMN_OF_Q = "Column name: /q:value\n\tEntity path: /q\n\tArchetype: None\n\tComponent type: \n\tComponent: value"
INDEX = IndexColumnDescriptor("frame", False)

ANSWERS: list[tuple[str, Callable[[World], Any], Any]] = [
    ("empty ds schema", lambda w: w.ds.schema().column_names(), []),
    ("empty arrow_schema", lambda w: str(w.ds.arrow_schema()), "\n-- schema metadata --\nsorbet:version: '0.1.3'"),
    ("empty segment_ids", lambda w: w.ds.segment_ids(), []),
    (
        "empty segment_table",
        lambda w: w.ds.segment_table().schema().names,
        [
            "rerun_segment_id",
            "rerun_layer_names",
            "rerun_storage_urls",
            "rerun_last_updated_at",
            "rerun_num_chunks",
            "rerun_size_bytes",
        ],
    ),
    ("empty manifest", lambda w: w.ds.manifest().count(), 0),
    (
        "bp.register_blueprint",
        lambda w: w.ds.blueprint_dataset().register_blueprint(w.junk),  # type: ignore[union-attr]
        Fails(LookupError, "a blueprint dataset is not configured for this dataset"),
    ),
    ("register []", lambda w: w.ds.register([]), Fails(ValueError, "no data sources to register")),
    (
        "register missing file",
        lambda w: w.ds.register("file:///nope/x.rrd"),
        Fails(NotFoundError, 'RRD file not found, file does not exists: "/nope/x.rrd"'),
    ),
    ("register plain path", lambda w: w.ds.register(str(w.folder / "r9.rrd")), Differs(NotFoundError)),
    (
        "register rel",
        lambda w: w.ds.register("rel/x.rrd"),
        Fails(ValueError, "Could not parse URL: relative URL without a base"),
    ),
    (
        "register host",
        lambda w: w.ds.register("file://rel/x.rrd"),
        Fails(
            NotFoundError,
            "RRD file not found, file URI should not have a host: file://rel/x.rrd "
            "(this may be caused by invalid relative-path URI)",
        ),
    ),
    ("register dir", lambda w: w.ds.register(str(w.folder / "empty")), Fails(NotFoundError, "path is not a file: ")),
    ("register junk", lambda w: len(list(w.ds.register(str(w.junk)).iter_results(60))), 1),
    ("register empty", lambda w: w.ds.register(str(w.junk)).wait(60), Differs(ValueError)),
    ("handle", lambda w: isinstance(w.register("r1"), RegistrationHandle), True),
    ("wait", lambda w: w.handle.wait(60).segment_ids, ["segA"]),
    ("wait again", lambda w: w.handle.wait().segment_ids, ["segA"]),
    (
        "iter_results",
        lambda w: w.replaced(repr(list(w.handle.iter_results()))),
        "[SegmentRegistrationResult(uri='file://scratch/r1.rrd', segment_id='segA', error=None)]",
    ),
    (
        "iter_results again",
        lambda w: w.replaced(repr(list(w.handle.iter_results()))),
        "[SegmentRegistrationResult(uri='file://scratch/r1.rrd', segment_id='segA', error=None)]",
    ),
    ("cancel", lambda w: w.handle.cancel(), None),
    (
        "register dup ERROR",
        lambda w: w.register("r1b", on_duplicate="error"),
        Fails(AlreadyExistsError, "Layer 'base' already exists"),
    ),
    ("register dup SKIP", lambda w: w.register("r1b", on_duplicate="skip").wait(60).segment_ids, ["segA"]),
    ("register dup REPLACE", lambda w: w.register("r1b", on_duplicate="replace").wait(60).segment_ids, ["segA"]),
    ("on_duplicate str", lambda w: w.register("r1b", on_duplicate="skip").wait(60).segment_ids, ["segA"]),
    (
        "on_duplicate bad",
        lambda w: w.register("r1", on_duplicate="bad"),
        Fails(ValueError, "invalid on_duplicate value: 'bad'. Expected 'error', 'skip', or 'replace'"),
    ),
    ("register str", lambda w: w.ds.register((w.folder / "r1.rrd").as_uri()).wait(60).segment_ids, ["segA"]),
    (
        "intra dup",
        lambda w: w.register("r1", "r1b"),
        Fails(
            ValueError,
            "duplicate segment layers in request:\n  segment id: segA, layer name: base\n"
            "    file://scratch/r1.rrd\n    file://scratch/r1b.rrd",
        ),
    ),
    (
        "intra diff layers",
        lambda w: w.register("r1", "r1b", layer_name=["l1", "l2"]).wait(60).segment_ids,
        ["segA", "segA"],
    ),
    (
        "layer len mismatch",
        lambda w: w.register("r1", "r1b", layer_name=["l1"]),
        Fails(ValueError, "`layer_name` must be the same length as `recording_uri`"),
    ),
    ("layer ''", lambda w: w.register("r1", layer_name="").wait(60).segment_ids, ["segA"]),
    ("layers", lambda w: [(one, sorted(names)) for one, names in w.layers()], [("segA", ["base", "l1", "l2"])]),
    (
        "conflict wait",
        lambda w: w.register("r2").wait(60),
        Fails(ValueError, CONFLICT.format("segB", "item") + FLOAT_TO_INT),
    ),
    (
        "conflict iter",
        lambda w: w.results(),
        Differs([(None, CONFLICT.format("segB", "item") + FLOAT_TO_INT)]),
    ),
    ("segments after conflict", lambda w: w.ds.segment_ids(), ["segA"]),
    (
        "partial conflict wait",
        lambda w: w.register("r2", "ok").wait(60),
        Fails(ValueError, "The following segments failed:\n"),
    ),
    (
        "partial conflict iter",
        lambda w: sorted(w.results(), key=str),
        Differs([("segZ", ""), (None, CONFLICT.format("segB", "item") + FLOAT_TO_INT)]),
    ),
    ("segments after partial", lambda w: sorted(w.ds.segment_ids()), ["segA", "segZ"]),
    (
        "index type conflict",
        lambda w: w.register("r3").wait(60),
        Fails(
            ValueError,
            CONFLICT.format("segC", "frame") + " because the from data_type = Timestamp(ns) does not equal Int64",
        ),
    ),
    ("archetype diff", lambda w: w.register("r4").wait(60).segment_ids, ["segD"]),
    ("component_type diff", lambda w: w.register("r5").wait(60).segment_ids, ["segE"]),
    (
        "schema names",
        lambda w: [(f.name, str(f.type), dict(sorted(f.metadata.items()))) for f in list(w.ds.arrow_schema())[2:]],
        [
            (
                "/a:value",
                "list<item: int64>",
                {
                    b"rerun:archetype": b"arch.X",
                    b"rerun:component": b"value",
                    b"rerun:component_type": b"ctype.X",
                    b"rerun:entity_path": b"/a",
                    b"rerun:kind": b"data",
                },
            ),
            (
                "/q:value",
                "list<item: int64>",
                {b"rerun:component": b"value", b"rerun:entity_path": b"/q", b"rerun:kind": b"data"},
            ),
        ],
    ),
    ("prefix none", lambda w: w.ds.register_prefix("file:///nope"), Fails(ValueError, 'Directory not found: "/nope"')),
    (
        "prefix empty",
        lambda w: w.ds.register_prefix((w.folder / "empty").as_uri()),
        Fails(ValueError, "no rrd files found in "),
    ),
    (
        "prefix ok",
        lambda w: sorted(w.ds.register_prefix((w.folder / "pfx").as_uri()).wait(60).segment_ids),
        ["p1", "p2"],
    ),
    (
        "prefix layer",
        lambda w: sorted(w.ds.register_prefix((w.folder / "pfx").as_uri(), layer_name="l").wait(60).segment_ids),
        ["p1", "p2"],
    ),
    (
        "prefix file",
        lambda w: w.ds.register_prefix((w.folder / "r1.rrd").as_uri()),
        Fails(ValueError, 'expected prefix / directory but got an object ("scratch/r1.rrd")'),
    ),
    (
        "prefix no scheme",
        lambda w: w.ds.register_prefix("pfx"),
        Fails(ValueError, "Could not parse URL: relative URL without a base"),
    ),
    ("column_for_selector('/a:value')", lambda w: str(w.ds.schema().column_for_selector("/a:value")), COLUMN),
    ("column_for_selector('a:value')", lambda w: str(w.ds.schema().column_for_selector("a:value")), COLUMN),
    (
        "column_for_selector('/a')",
        lambda w: w.ds.schema().column_for_selector("/a"),
        Fails(ValueError, "Expected string in the form of `entity_path:component_type`, got: /a"),
    ),
    (
        "column_for_selector('')",
        lambda w: w.ds.schema().column_for_selector(""),
        Fails(ValueError, "Expected column selector, found empty string"),
    ),
    (
        "column_for_selector('/nope:value')",
        lambda w: w.ds.schema().column_for_selector("/nope:value"),
        Fails(LookupError, "Could not find column for selector /nope:value"),
    ),
    (
        "column_for_selector('property:RecordingInfo:start_time')",
        lambda w: w.ds.schema().column_for_selector("property:RecordingInfo:start_time"),
        Fails(LookupError, "Could not find column for selector "),
    ),
    ("sel obj", lambda w: w.ds.schema().column_for_selector(ComponentColumnSelector("/a", "value")).name, "/a:value"),
    ("column_for none", lambda w: w.ds.schema().column_for("/nope", "value"), None),
    ("column_for", lambda w: str(w.ds.schema().column_for("/a", "value")), COLUMN),
    ("sel 5", lambda w: w.ds.schema().column_for_selector(5), Fails(TypeError, "selector")),  # type: ignore[arg-type]
    (
        "repr schema",
        lambda w: repr(w.ds.schema()),
        f"Index(timeline:frame)\n{COLUMN}\n{COLUMN_OF_Q}",
    ),
    (
        "IndexSel",
        lambda w: (repr(IndexColumnSelector("frame")), IndexColumnSelector("frame").name),
        ("Index(timeline:frame)", "frame"),
    ),
    ("Idx desc", lambda w: (repr(INDEX), INDEX.name, INDEX.is_static), ("Index(timeline:frame)", "frame", False)),
    ("CompSel", lambda w: f"({ComponentColumnSelector('/a', 'v')}, '/a')", "(/a:v, '/a')"),
    ("hash desc", lambda w: len({*w.ds.schema().index_columns(), *w.ds.schema().component_columns()}), 3),
    ("download_segment unknown", lambda w: w.ds.download_segment("nope"), Differs(NotFoundError)),
    (
        "segment_store unknown",
        lambda w: w.ds.segment_store("nope"),
        Fails(NotFoundError, "Segment 'nope' not found in dataset '"),
    ),
    (
        "unregister none",
        lambda w: w.ds.unregister(),
        Fails(ValueError, "must specify at least 1 segment ID or layer for removal"),
    ),
    (
        "unregister",
        lambda w: (w.ds.unregister(segments_to_drop="p1").wait(), sorted(w.ds.segment_ids())),  # 0.33: no handle
        (None, ["p2", "segA", "segD", "segE", "segZ"]),
    ),
    (
        "segment_table join bad key",
        lambda w: w.ds.segment_table(join_meta=w.ds.manifest(), join_key="nope"),
        Fails(ValueError, "Dataset segment table must contain join_key column 'nope'."),
    ),
]
"""The calls in their order, and what comes of each."""

ELSEWHERE = (
    "register s3",
    "rows",
    "empty reader",
    "filter_segments",
    "create_fts",
    "create_vec",
    "list_search",
    "delete_search",
    "search_fts",
)
"""What rows begin with that are about objects (see tests/engine/objects), queries and search."""


def test_calls_are_answered_as_rerun_does(tmp_path: Path) -> None:
    world = World(tmp_path)
    wrong = []
    for name, call, expected in ANSWERS:
        wanted = expected.value if isinstance(expected, Differs) else expected
        kind = wanted.kind if isinstance(wanted, Fails) else wanted if isinstance(wanted, type) else None
        try:
            found = call(world)
        except Exception as error:  # noqa: BLE001 (compared with what is wanted)
            text = wanted.text if isinstance(wanted, Fails) else ""
            if kind is None or not isinstance(error, kind) or text not in world.replaced(str(error)):
                wrong.append((name, repr(error)))
            continue
        if kind is not None or found != wanted:
            wrong.append((name, found))
    assert not wrong


@pytest.mark.wide
def test_every_recorded_answer_is_looked_at() -> None:
    from test_errors import DIFFERENT, ERRORS, RESULTS

    if not GOLDEN.exists():
        pytest.skip("the recorded answers are not at hand")
    rows: list[dict[str, str]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    answers = {name: expected for name, _, expected in ANSWERS}
    known = {**ERRORS, **RESULTS, **DIFFERENT, **answers}
    assert not [row["call"] for row in rows if row["call"] not in known and not row["call"].startswith(ELSEWHERE)]
    for row in rows:
        expected = answers.get(row["call"])
        if isinstance(expected, Fails):
            assert row["error_type"] == expected.kind.__name__, row
            assert expected.text in row["error"] or row["call"] == "prefix none", row
        elif isinstance(expected, str) and not row["call"].startswith("iter_results"):
            assert row["result"] in (expected, repr(expected)), row
