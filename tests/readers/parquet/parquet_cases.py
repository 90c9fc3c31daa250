"""The cases of ``golden/reader_chunks.txt``: for each title a table and what the reader is asked for."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
from chunkmill.readers import ColumnRule

R = ColumnRule


class Case(NamedTuple):
    """A table that is written to a file, and the reader's keyword arguments."""

    table: pa.Table
    options: dict[str, Any]


BASE = pa.table(
    {
        "camera_rgb": [1, 2, 3],
        "camera_depth": [1.5, 2.5, 3.5],
        "solo": ["a", "b", "c"],
        "_lead": [1, 2, 3],
        "trail_": [1, 2, 3],
        "a__b": [1, 2, 3],
        "camera": [7, 8, 9],
        "t": [10, 20, 30],
    }
)
DOTS = pa.table({"a.b": [1], "a.c.d": [2], "x": [3], ".y": [4]})
STATIC = pa.table(
    {
        "cfg_a": ["x"] * 3,
        "cfg_b": [1] * 3,
        "v": [1, 2, 3],
        "nul": pa.array([None] * 3, pa.int64()),
        "pn": [1, None, 1],
        "lst": [[1], [2], [3]],
        "nan": [float("nan")] * 3,
    }
)
CAT = pa.table({"catalog_x": [1], "cat_y": [2], "category": [3], "cat": [4], "cat__z": [5], "cat_": [6]})
ODD = pa.table(
    [[1], [2], [3], [4], [5], [6], [7]],
    names=["a/b_c", "x y_z", "q.r_s", "", "é_ü", "/lead_x", "__properties_x"],
)
POS, QUAT = ["_pos_x", "_pos_y", "_pos_z"], ["_quat_x", "_quat_y", "_quat_z", "_quat_w"]
XYZ = ["_x", "_y", "_z"]
EXPLICIT: dict[str, Any] = {"column_grouping": "explicit_prefixes"}
INDIVIDUAL: dict[str, Any] = {"column_grouping": "individual"}


def numbered(*names: str) -> pa.Table:
    """Two rows of floats that tell each column from the others."""
    return pa.table([[10.0 * i, 10.0 * i + 1] for i in range(len(names))], names=list(names))


def named(prefix: str, *ends: str) -> list[str]:
    return [prefix + end for end in ends]


PLAIN: dict[str, Case] = {
    "prefix default": Case(BASE, {}),
    "prefix flat": Case(BASE, {"use_structs": False}),
    "individual": Case(BASE, INDIVIDUAL),
    "individual + use_structs=True": Case(BASE, {**INDIVIDUAL, "entity_path_prefix": "w/x"}),
    "explicit": Case(BASE, {**EXPLICIT, "prefixes": ["camera", "a_"]}),
    "explicit flat": Case(BASE, {**EXPLICIT, "prefixes": ["camera", "so"], "use_structs": False}),
    "delimiter .": Case(DOTS, {"delimiter": "."}),
    "entity prefix no slash": Case(BASE, {**EXPLICIT, "prefixes": ["camera"], "entity_path_prefix": "robot/arm"}),
    "index ts s": Case(BASE, {**EXPLICIT, "prefixes": ["camera"], "index_columns": [("t", "timestamp", "s")]}),
    "index dur ms": Case(BASE, {"index_columns": [("t", "duration", "ms")]}),
    "index seq with unit": Case(BASE, {"index_columns": [("t", "sequence", "s")]}),
    "index string col": Case(BASE, {"index_columns": [("solo", "sequence")]}),
    "two index": Case(BASE, {"index_columns": [("t", "timestamp"), ("camera_rgb", "sequence")]}),
    "dup index": Case(BASE, {"index_columns": [("t", "timestamp"), ("t", "sequence")]}),
    "one valid one invalid index": Case(BASE, {"index_columns": [("solo", "sequence"), ("t", "timestamp")]}),
    "empty index": Case(BASE, {"index_columns": []}),
    "static ok": Case(STATIC, {"static_columns": ["cfg_a", "cfg_b"]}),
    "static missing ignored": Case(STATIC, {"static_columns": ["nope"]}),
    "static list": Case(STATIC, {"static_columns": ["lst"]}),
    "static nan": Case(STATIC, {"static_columns": ["nan"]}),
    "static prefix": Case(STATIC, {"static_columns": ["cfg_a"], "entity_path_prefix": "w"}),
    "static + index same col": Case(STATIC, {"static_columns": ["cfg_b"], "index_columns": [("cfg_b", "sequence")]}),
    "odd names": Case(ODD, {}),
    "dup names individual": Case(pa.table([[1], [2]], names=["p_a", "p_a"]), INDIVIDUAL),
    "component named data collision": Case(pa.table({"p_data": [1]}), {}),
    "prefix order": Case(pa.table({"z_a": [1], "a_a": [1], "B_a": [1]}), {}),
    "explicit longest first": Case(CAT, {**EXPLICIT, "prefixes": ["cat", "catalog"]}),
    "explicit prefix w/ trailing underscore": Case(CAT, {**EXPLICIT, "prefixes": ["cat_"], "use_structs": False}),
}

_POSE = numbered(*named("A", *POS, *QUAT), "A_extra")
_SUB = numbered(*named("A_l", *POS), *named("A_r", *POS))
_XYZ = numbered(*named("A", *XYZ))
_ACCEL = numbered(*named("A_accel", *XYZ))
_BOTH = numbered(*named("A", *POS), *named("A_v", *XYZ))
_TWO = numbered(*named("A_l", *POS, *QUAT), *named("A_r", *POS))
_MIX = pa.table({"A_x": [1, None, 3], "A_y": [1.5, 2.5, None], "A_z": [True, False, None]})
_TEXT = pa.table({"A_x": ["1", "2"], "A_y": ["1.0", "abc"], "A_z": [3, 4]})

RULED: dict[str, tuple[pa.Table, list[ColumnRule], dict[str, Any]]] = {
    "pos+quat": (_POSE, [R.translation3d(POS), R.rotation_quat(QUAT)], {}),
    "only pos": (numbered(*named("A", *POS)), [R.translation3d(POS)], {}),
    "sub-prefix": (_SUB, [R.translation3d(POS)], {}),
    "override": (
        numbered(*named("A_l", *POS), *named("A", *POS)),
        [R.translation3d(POS, field_name_override="_pos")],
        {},
    ),
    "override no underscore": (
        numbered(*named("A_l", *POS), *named("A", *POS)),
        [R.translation3d(POS, field_name_override="pos")],
        {},
    ),
    "override empty": (numbered(*named("A_l", *POS)), [R.translation3d(POS, field_name_override="")], {}),
    "generic _x _y _z at group root": (_XYZ, [R.translation3d(XYZ)], {}),
    "scalars": (_ACCEL, [R.scalars(XYZ, names=["X", "Y", "Z"])], {}),
    "scalars root": (_XYZ, [R.scalars(XYZ, names=["X", "Y", "Z"])], {}),
    "scalars + raw": (numbered(*named("A", *XYZ), "A_foo"), [R.scalars(XYZ, names=["X", "Y", "Z"])], {}),
    "transform": (_POSE, [R.transform(POS, QUAT)], {}),
    "transform 2 subprefix": (_TWO, [R.transform(POS, QUAT), R.translation3d(POS)], {}),
    "transform override": (
        numbered(*named("A_l", *POS, *QUAT)),
        [R.transform(POS, QUAT, field_name_override="_pose")],
        {},
    ),
    "axis angle + scale": (
        numbered("A_a_x", "A_a_y", "A_a_z", "A_a_r", "A_s_i", "A_s_j", "A_s_k"),
        [R.rotation_axis_angle(["_x", "_y", "_z", "_r"]), R.scale3d(["_i", "_j", "_k"])],
        {},
    ),
    "order: broad first shadows": (
        numbered(*named("A", *POS)),
        [R.scalars(XYZ, names=["x", "y", "z"]), R.translation3d(POS)],
        {},
    ),
    "order: specific first": (_BOTH, [R.translation3d(POS), R.scalars(XYZ, names=["x", "y", "z"])], {}),
    "suffix no underscore boundary": (
        numbered("A_accelx", "A_accely", "A_accelz"),
        [R.translation3d(["x", "y", "z"])],
        {},
    ),
    "suffix w/o leading underscore ok boundary": (
        numbered("A_b_x", "A_b_y", "A_b_z"),
        [R.translation3d(["x", "y", "z"])],
        {},
    ),
    "missing one": (numbered("A_pos_x", "A_pos_y"), [R.translation3d(POS)], {}),
    "columns without delimiter prefix": (numbered("pos_x", "pos_y", "pos_z"), [R.translation3d(POS)], {}),
    "columns without delimiter prefix 2": (numbered("pos_x", "pos_y", "pos_z"), [R.translation3d(XYZ)], {}),
    "individual pos": (_POSE, [R.translation3d(POS), R.rotation_quat(QUAT)], INDIVIDUAL),
    "individual root prefix empty": (numbered("_pos_x", "_pos_y", "_pos_z"), [R.translation3d(POS)], INDIVIDUAL),
    "individual scalars": (
        numbered("A_b_x", "A_b_y", "A_b_z", "z"),
        [R.scalars(XYZ, names=["X", "Y", "Z"])],
        INDIVIDUAL,
    ),
    "individual transform": (_POSE, [R.transform(POS, QUAT)], INDIVIDUAL),
    "individual no boundary": (
        numbered("accelx", "accely", "accelz"),
        [R.translation3d(["x", "y", "z"])],
        INDIVIDUAL,
    ),
    "explicit rules": (
        numbered(*named("robot", *POS), *named("other", *POS)),
        [R.translation3d(POS)],
        {**EXPLICIT, "prefixes": ["robot"]},
    ),
    "delimiter . with rules": (
        numbered("A.pos_x", "A.pos_y", "A.pos_z"),
        [R.translation3d(POS)],
        {"delimiter": "."},
    ),
    "delimiter . suffix .x": (
        numbered("A.pos.x", "A.pos.y", "A.pos.z"),
        [R.translation3d([".x", ".y", ".z"])],
        {"delimiter": "."},
    ),
    "rule on ints/bools/nulls": (_MIX, [R.translation3d(XYZ)], {}),
    "rule on strings": (_TEXT, [R.translation3d(XYZ)], {}),
    "scalars on strings": (_TEXT, [R.scalars(XYZ, names=["a", "b", "c"])], {}),
    "two rules same subprefix": (
        numbered(*named("A_l", *POS, *QUAT)),
        [R.translation3d(POS), R.rotation_quat(QUAT)],
        {},
    ),
}

WIDE: dict[str, Case] = {
    f"{title} [{options.get('column_grouping', 'prefix')}, use_structs={structs}]": Case(
        table, {**options, "column_rules": rules, "use_structs": structs}
    )
    for title, (table, rules, options) in RULED.items()
    for structs in (True, False)
}

CASES: dict[str, Case] = {**PLAIN, **WIDE}
