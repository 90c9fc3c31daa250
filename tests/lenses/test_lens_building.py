"""Builders: what they check, that they do not change, what the shortcuts for common derivations give."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, ComponentDescriptor, TimeColumn
from chunkmill.lenses import DeriveLens, LensSet, MutateLens, Selector, apply_lenses

XYZ = [("x", pa.float64()), ("y", pa.float64()), ("z", pa.float64())]
POSE = pa.struct(
    {
        "position": pa.struct(XYZ),
        "orientation": pa.struct([*XYZ, ("w", pa.float64())]),
        "listed": pa.list_(pa.float32(), 3),
        "free": pa.list_(pa.int32()),
        "angle": pa.float32(),
        "name": pa.string(),
    }
)


def pose(x: float | None, **more: Any) -> dict:
    quaternion = {"x": 0.0, "y": 0.0, "z": 0.0, "w": 1.0}
    row = {"position": {"x": x, "y": 2.0, "z": 3.0}, "orientation": quaternion, "listed": [1, 2, 3], "free": [4, 5, 6]}
    return {**row, "angle": 90.0, "name": "n", **more}


def poses(*rows: list | None) -> Chunk:
    column = ComponentColumn(ComponentDescriptor("Pose:message"), pa.array(rows, pa.list_(POSE)))
    return Chunk.from_columns("/pose", [TimeColumn("frame", sequence=range(len(rows)))], [column])


def derived(lens: DeriveLens, chunk: Chunk) -> dict[str, pa.Array]:
    (own,) = apply_lenses(chunk, lens)
    return {c.descriptor.component: c.values for c in own.data.components}


LENS = DeriveLens("Pose:message")


def test_builders_give_other_lenses() -> None:
    one = LENS.to_component("a", ".x")
    two = one.to_component("b", ".y").to_timeline("t", "sequence", ".z")
    assert (len(LENS.outputs), len(one.outputs), len(two.outputs), len(two.timelines)) == (0, 1, 2, 1)
    assert pickle.loads(pickle.dumps(two)) == two
    assert pickle.loads(pickle.dumps(MutateLens("A:b", ".x", keep_row_ids=True))) == MutateLens(
        "A:b", ".x", keep_row_ids=True
    )


def test_inputs_are_names() -> None:
    for build in (DeriveLens, lambda component: MutateLens(component, ".")):
        with pytest.raises(
            TypeError, match=r"^argument 'input_component': 'ComponentDescriptor' object is not an inst"
        ):
            build(ComponentDescriptor("Pose:message"))


def test_a_name_says_nothing_of_archetypes() -> None:
    (output,) = LENS.to_component("Foo:bar", ".").outputs
    assert output.descriptor == ComponentDescriptor("Foo:bar", None, None)


@pytest.mark.parametrize("word", ["nope", "duration_us", "Timestamp", ""])
def test_timeline_types_are_checked_at_once(word: str) -> None:
    with pytest.raises(ValueError, match=f"^Unknown timeline type '{word}', expected 'sequence', 'duration_ns', or"):
        LENS.to_timeline("t", word, ".")


def test_queries_are_parsed_at_once() -> None:
    for build in (
        lambda: LENS.to_component("a", ".["),
        lambda: LENS.to_timeline("t", "sequence", ".["),
        lambda: MutateLens("a", ".["),
    ):
        with pytest.raises(ValueError, match="Failed to parse selector: unexpected end of input"):
            build()


@pytest.mark.parametrize(
    ("build", "argument", "kind"),
    [
        (lambda: DeriveLens("M:m", output_entity=5), "output_entity", "str"),
        (lambda: DeriveLens("M:m", output_child=5), "output_child", "str"),
        (lambda: DeriveLens("M:m", scatter="yes"), "scatter", "bool"),
        (lambda: DeriveLens("M:m", keep_empty=1), "keep_empty", "bool"),
        (lambda: DeriveLens("M:m", strict=None), "strict", "bool"),
        (lambda: LENS.to_component(5, "."), "component", "ComponentDescriptor"),
        (lambda: LENS.to_component(None, "."), "component", "ComponentDescriptor"),
        (lambda: LENS.to_constant(5, []), "component", "ComponentDescriptor"),
        (lambda: LENS.to_timeline(5, "sequence", "."), "timeline_name", "str"),
        (lambda: LENS.to_timeline("t", 5, "."), "timeline_type", "str"),
        (lambda: MutateLens("M:m", ".", keep_row_ids=1), "keep_row_ids", "bool"),
    ],
)
def test_arguments_of_another_type_are_refused_at_once(build: Any, argument: str, kind: str) -> None:
    with pytest.raises(TypeError, match=f"^argument '{argument}': '.*' object is not an instance of '{kind}'$"):
        build()


@pytest.mark.parametrize("selector", [5, None, lambda a: a, pa.array([1])])
def test_what_is_no_selector_is_refused(selector: Any) -> None:
    for build in (
        lambda: LENS.to_component("a", selector),
        lambda: LENS.to_timeline("t", "sequence", selector),
        lambda: LENS.where(selector),
        lambda: MutateLens("M:m", selector),
        lambda: Chunk.from_columns("/a", [], []).apply_selector("a", selector),
    ):
        with pytest.raises(TypeError, match="expected a Selector or a query string, got a '"):
            build()


@pytest.mark.parametrize(
    ("lens", "message"),
    [
        (LENS, "Lens for input component `Pose:message` is missing output components"),
        (
            LENS.to_timeline("t", "sequence", "."),
            "Lens for input component `Pose:message` is missing output components",
        ),
        (LENS.to_component("Pose:message", "."), "Derive lens targets the same component as its input `Pose:message`"),
    ],
)
def test_lenses_are_checked_when_they_are_used(lens: DeriveLens, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LensSet(lens)
    with pytest.raises(ValueError, match=message):
        poses().apply_lenses(lens)


@pytest.mark.parametrize(("given", "path"), [("o", "/o"), ("/o", "/o"), ("/o/", "/o"), ("", "/"), ("/", "/")])
def test_output_entities_are_parsed_forgivingly(given: str, path: str) -> None:
    chunks = apply_lenses(poses([pose(1.0)]), DeriveLens("Pose:message", output_entity=given).to_component("a", "."))
    assert [c.entity_path for c in chunks] == [path]


# --- shortcuts


def test_scalars() -> None:
    chunk = poses([pose(1.0)], [], None, [pose(None), None])
    found = derived(LENS.to_scalars(".position.x", ".position.y"), chunk)["Scalars:scalars"]
    assert found.type == pa.list_(pa.float64())
    assert found.to_pylist() == [[1.0, 2.0], [], None, [None, 2.0, None, None]]


def test_one_scalar_in_another_unit() -> None:
    chunk = poses([pose(1.0)])
    found = derived(LENS.to_scalars(".angle", unit="deg", to_unit="rev"), chunk)["Scalars:scalars"]
    assert found.to_pylist() == [[0.25]]
    assert derived(LENS.to_scalars(".free[]"), chunk)["Scalars:scalars"].to_pylist() == [[4.0, 5.0, 6.0]]


def test_names_of_series_come_in_a_static_chunk() -> None:
    lens = DeriveLens("Pose:message", output_entity="/xy").to_scalars(".position.x", ".position.y", names="xy")
    moved, names = apply_lenses(poses([pose(1.0)]), lens)
    assert (moved.entity_path, names.entity_path, names.is_static) == ("/xy", "/xy", True)
    (column,) = names.data.components
    assert column.descriptor == ComponentDescriptor(
        "SeriesLines:names", "rerun.archetypes.SeriesLines", "rerun.components.Name"
    )
    assert column.values.to_pylist() == [["x", "y"]]
    merged, names = apply_lenses(poses([pose(1.0)]), LENS.to_scalars(".angle", names=["a"]))
    assert names.entity_path == merged.entity_path == "/pose"


@pytest.mark.parametrize(
    ("selectors", "expected"),
    [
        ([".position"], [[1.0, 2.0, 3.0], [9.0, 2.0, 3.0]]),
        ([".position.x", ".position.y", ".position.z"], [[1.0, 2.0, 3.0], [9.0, 2.0, 3.0]]),
        ([".listed"], [[1.0, 2.0, 3.0]] * 2),
        ([".free"], [[4.0, 5.0, 6.0]] * 2),
        ([Selector(".position | .z"), ".free[0]", ".angle"], [[3.0, 4.0, 90.0]] * 2),
    ],
)
def test_translations(selectors: list, expected: list) -> None:
    found = derived(LENS.to_translation3d(*selectors), poses([pose(1.0), pose(9.0)]))["Transform3D:translation"]
    found.validate(full=True)
    assert found.type == pa.list_(pa.list_(pa.field("item", pa.float32(), nullable=False), 3))
    assert found.to_pylist() == [expected]


def test_a_null_coordinate_makes_a_null_translation() -> None:
    chunk = poses([pose(None), pose(1.0)], [None], [pose(1.0, position=None, listed=None, free=None)])
    assert derived(LENS.to_translation3d(".position"), chunk)["Transform3D:translation"].to_pylist() == [
        [None, [1.0, 2.0, 3.0]], [None], [None],
    ]  # fmt: skip
    for listed, first in ((".listed", [1.0, 2.0, 3.0]), (".free", [4.0, 5.0, 6.0])):
        found = derived(LENS.to_translation3d(listed), chunk)["Transform3D:translation"]
        assert found.to_pylist() == [[first, first], [None], [None]]


def test_units_of_translations() -> None:
    found = derived(LENS.to_translation3d(".position", unit="mm"), poses([pose(1500.0)]))
    assert found["Transform3D:translation"].values.flatten().to_pylist() == pytest.approx([1.5, 0.002, 0.003])
    found = derived(LENS.to_translation3d(".free", unit=0.5), poses([pose(0.0)]))
    assert found["Transform3D:translation"].to_pylist() == [[[2.0, 2.5, 3.0]]]


def test_rotations_and_transforms() -> None:
    found = derived(LENS.to_transform3d(".position", ".orientation", unit="km"), poses([pose(1.0)]))
    assert found["Transform3D:translation"].to_pylist() == [[[1000.0, 2000.0, 3000.0]]]
    assert found["Transform3D:quaternion"].to_pylist() == [[[0.0, 0.0, 0.0, 1.0]]]
    spelled = LENS.to_transform3d([".position.x", ".position.y", ".position.z"], [f".orientation.{c}" for c in "xyzw"])
    assert derived(spelled, poses([pose(1.0)]))["Transform3D:quaternion"].to_pylist() == [[[0.0, 0.0, 0.0, 1.0]]]
    (_, rotation) = spelled.outputs
    assert rotation.descriptor.component_type == "rerun.components.RotationQuat"


@pytest.mark.parametrize(
    ("lens", "message"),
    [
        (LENS.to_rotation_quat(".listed"), r"expected 4 numbers in FixedSizeList\(3 x Float32\)"),
        (LENS.to_rotation_quat(".free"), r"expected 4 numbers in List\(Int32\)"),
        (LENS.to_rotation_quat(".angle"), "no 4 numbers in type Float32"),
        (LENS.to_translation3d(".name", ".angle", ".angle"), "expected a number, got type Utf8"),
        (LENS.to_scalars(".angle", ".free[]"), "the selectors of a vector give different numbers of values"),
    ],
)
def test_what_makes_no_vector(lens: DeriveLens, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        apply_lenses(poses([pose(1.0)]), lens)


def test_a_missing_field_gives_no_vector() -> None:
    assert apply_lenses(poses([pose(1.0)]), LENS.to_translation3d(".orientations")) == []
    assert apply_lenses(poses([pose(1.0)]), LENS.to_rotation_quat(".position")) == []


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: LENS.to_scalars(), "to_scalars requires at least one selector"),
        (lambda: LENS.to_translation3d(".x", ".y"), "to_translation3d takes one selector or 3, got 2"),
        (lambda: LENS.to_rotation_quat(".x", ".y", ".z"), "to_rotation_quat takes one selector or 4, got 3"),
        (lambda: LENS.to_scalars(".x", to_unit="m"), "`to_unit` needs `unit`"),
        (lambda: LENS.to_scalars(".x", unit="parsec"), "Unknown unit 'parsec'"),
    ],
)
def test_shortcuts_check_their_arguments(build: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
