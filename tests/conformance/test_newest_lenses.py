"""Lenses and selectors by the names of Rerun's newest release: the same calls here and there, on the same data."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine import Chunk, ComponentColumn, LazyChunkStream, TimeColumn
from chunkmill.lenses import DeriveLens, Selector
from chunkmill.lenses.archetypes import arrow_types
from comparison import described_columns as columns

theirs = pytest.importorskip("rerun.chunk")
rr = pytest.importorskip("rerun")

FIELDS = [*((name, pa.float64()) for name in "xyzw"), ("i", pa.int32()), ("s", pa.string())]
POSES = pa.array(
    [
        {"x": 1.0, "y": 2.0, "z": 3.0, "w": 4.0, "i": 5, "s": "q"},
        {"x": None, "y": 2.0, "z": 3.0, "w": 4.0, "i": 5, "s": "q"},
        None,
    ],
    pa.struct(FIELDS),
)


def pose_chunk() -> Chunk:
    rows = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), POSES)
    return Chunk.from_columns("/pose", [TimeColumn("frame", sequence=range(3))], [ComponentColumn("A:m", rows)])


# --- lenses


@pytest.mark.parametrize(
    "build",
    [
        lambda lens, rr: lens.to_translation("x", "y", "z"),
        lambda lens, rr: lens.to_quaternion("x", "y", "z", "w"),
        lambda lens, rr: lens.to_scale("x", "y", "z"),
        lambda lens, rr: lens.to_packed_component(rr.Points2D.descriptor_positions(), "x", "y"),
        lambda lens, rr: lens.to_packed_component("C", "x", "y", cast_to=None),
        lambda lens, rr: lens.to_packed_component("C", "x", "y", cast_to=pa.list_(pa.float32(), 2)),
        lambda lens, rr: lens.to_packed_component("C", "s", cast_to=None),
        lambda lens, rr: lens.to_component(rr.Scalars.descriptor_scalars(), ".i", cast_to="auto"),
        lambda lens, rr: lens.to_component(rr.Points3D.descriptor_colors(), ".i", cast_to="auto"),
        lambda lens, rr: lens.to_component("C", ".x", cast_to=pa.float32()),
        lambda lens, rr: lens.to_component(rr.TextLog.descriptor_text(), '"hello"'),
        lambda lens, rr: lens.to_scalars("x"),
        lambda lens, rr: lens.to_translation("x", "y", "z").to_quaternion("x", "y", "z", "w").to_scalars("x"),
    ],
)
def test_lenses_give_what_the_peers_give(build: Callable[[Any, Any], Any]) -> None:
    chunk = pose_chunk()
    (peer,) = theirs.Chunk.from_record_batch(chunk.to_record_batch())
    made = peer.apply_lenses(build(theirs.DeriveLens("A:m", output_entity="/out"), rr))
    (wanted,) = [c for c in made if c.entity_path == "/out"]
    lens = build(DeriveLens("A:m", output_entity="/out"), rr)
    (found,) = [c for c in chunk.apply_lenses(pickle.loads(pickle.dumps(lens))) if c.entity_path == "/out"]
    assert columns(found.to_record_batch()) == columns(wanted.to_record_batch())


def test_rotations_about_an_axis() -> None:
    lens = DeriveLens("A:m", output_entity="/out").to_rotation_axis_angle("x", "y", "z", "w")
    (found,) = [c for c in pose_chunk().apply_lenses(lens) if c.entity_path == "/out"]
    (column,) = columns(found.to_record_batch())
    assert column[:3] == (
        b"Transform3D:rotation_axis_angle",
        b"rerun.archetypes.Transform3D",
        b"rerun.components.RotationAxisAngle",
    )
    assert column[3].value_type == arrow_types()["RotationAxisAngle"]
    assert column[4] == [[{"axis": [1.0, 2.0, 3.0], "angle": 4.0}], [None], [None]]


def test_scalars_of_several_fields() -> None:
    for fields in (("x", "y"), (".x", "y"), (Selector(".x"), ".y")):
        lens = DeriveLens("A:m", output_entity="/out").to_scalars(*fields)
        (found,) = [c for c in pose_chunk().apply_lenses(lens) if c.entity_path == "/out"]
        assert columns(found.to_record_batch())[0][4][0] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda lens: lens.to_packed_component("C"), ValueError, "requires at least one field"),
        (lambda lens: lens.to_packed_component("C", "x"), ValueError, "Cannot auto-cast output component 'C'"),
        (lambda lens: lens.to_scalars(), ValueError, "requires at least one"),
        (lambda lens: lens.to_component("C", ".", cast_to="nope"), ValueError, "'nope' is not an Arrow type"),
        (lambda lens: lens.to_component("C", ".", cast_to=5), TypeError, "argument 'cast_to'"),
        (lambda lens: lens.to_translation("x", "y", 5), TypeError, "argument 'field'"),
    ],
)
def test_what_lenses_refuse_at_once(build: Callable[[Any], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build(DeriveLens("A:m"))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda lens: lens.to_translation("x", "y", "nope"), "nope"),
        (lambda lens: lens.to_packed_component("C", "x", "nope", cast_to=None), "Available fields: .x, y, z, w, i, s"),
        (lambda lens: lens.to_packed_component("C", "x", "i", cast_to=None), "has type Int32, but expected Float64"),
        (lambda lens: lens.to_component("C", ".s", cast_to=pa.float32()), "q"),
        (
            lambda lens: lens.to_packed_component(rr.Transform3D.descriptor_translation(), "x", "y"),
            "lists of 2 do not fit lists of 3",
        ),
    ],
)
def test_what_lenses_refuse_of_the_data(build: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pose_chunk().apply_lenses(build(DeriveLens("A:m", output_entity="/out")))


@pytest.mark.usefixtures("spark")
def test_the_newest_lenses_travel() -> None:
    lens = (
        DeriveLens("A:m", output_entity="/out")
        .to_translation("x", "y", "z")
        .to_rotation_axis_angle("x", "y", "z", "w")
        .to_component("text", '"hello"')
        .to_packed_component("xy", "x", "y", cast_to=pa.list_(pa.float32(), 2))
        .to_timeline("later", "duration", Selector(".i").cast("int64"))
    )
    chunk = pose_chunk().apply_selector("A:m", Selector(".").pipe(lambda a: a.fill_null(POSES[0].as_py())))
    made = [LazyChunkStream.from_iter([chunk]).lenses(lens).to_chunks(executor=e) for e in ("inline", "spark")]
    inline, spark = ([columns(c.to_record_batch()) for c in chunks] for chunks in made)
    assert inline == spark and len(inline[0]) == 4
    assert made[0][0].timeline_names == ["frame", "later"]


def test_the_types_of_components_are_the_peers() -> None:
    from rerun import components

    known = {n.removesuffix("Batch"): getattr(components, n) for n in dir(components) if n.endswith("Batch")}
    kinds = {n: b._ARROW_DATATYPE for n, b in known.items()}
    left_out = {"AnnotationContext", "ImageFormat", "SphericalHarmonics3Rgb", "TensorData"}
    assert arrow_types() == {n: k for n, k in kinds.items() if n not in left_out}


# --- selectors


@pytest.mark.parametrize(
    "query",
    [
        '"text"',
        '. | "text"',
        '.x | "a\\n\\"b\\""',
        '"a" | "b"',
        '.l[] | "t"',
        '.l | map("t")',
        '.missing | "t"',
        "pack(.x!, .y!)",
        "pack(.x!)",
        "pack( .s!,.s! )",
        "pack(.l[0]!, .x!)",
        ". | pack(.x!, .y!)",
    ],
)
@pytest.mark.parametrize("per_row", [False, True])
def test_constants_and_packs(query: str, per_row: bool) -> None:
    kind = pa.struct([("x", pa.float64()), ("y", pa.float64()), ("s", pa.string()), ("l", pa.list_(pa.float64()))])
    rows = [{"x": 1.0, "y": 2.0, "s": "a", "l": [1.0, 2.0]}, {"x": None, "y": 3.0, "s": "b", "l": []}, None]
    flat = pa.array(rows, kind)
    source = pa.array([rows[:2], None, [], rows[:1]], pa.list_(kind)) if per_row else flat
    name = "execute_per_row" if per_row else "execute"
    found, wanted = getattr(Selector(query), name)(source), getattr(theirs.Selector(query), name)(source)
    assert (found is None) == (wanted is None)
    if found is not None:
        assert (found.type, found.to_pylist()) == (wanted.type, wanted.to_pylist())
    assert str(Selector(query)) == str(theirs.Selector(query))
    assert str(pickle.loads(pickle.dumps(Selector(query)))) == str(Selector(query))


@pytest.mark.parametrize(
    "query",
    [
        '"',
        '.x "t"',
        '"t"?',
        '"t"!',
        "pack()",
        "pack",
        "pack(.x; .y)",
        "pack(.x,)",
        'pack("a")',
        "pack(.x[])",
        "pack(pack(.x))",
    ],
)
def test_queries_that_both_refuse(query: str) -> None:
    for selector in (Selector, theirs.Selector):
        with pytest.raises(ValueError, match="Failed to parse selector"):
            selector(query)
