"""Definitions in the metadata of fields: names and digests, by which functions are found, and never code."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa
import pytest
from chunkmill.engine.errors import ReadError, UsageError
from chunkmill.engine.tables import Columns, Definition, group_metadata, metadata_of, remember, resolve, udf
from chunkmill.engine.tables import targets as stored

MODULE = """
from pathlib import Path
import pyarrow as pa
from chunkmill.engine.tables import udf

Path(__file__).with_suffix(".imported").touch()

@udf
def doubled(a: int) -> int:
    return a * 2

@udf(pa.string())
def batches(rows: pa.RecordBatch):
    return rows.column(0)

class Model:
    def __init__(self, by: int = 1) -> None:
        self.by = by
    def __call__(self, a: int) -> int:
        return a * self.by

class Group:
    inner = udf(Model)

ten = udf(Model)(10)
plain = len

def made():
    @udf
    def local(a: int) -> int:
        return a
    return local
"""


class Pair(NamedTuple):
    x: int
    y: str


@udf
def pair(a: int) -> Columns[Pair]:
    return Pair(a, "")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package ``lake_functions`` with the module ``lake_functions.columns``, and none of it loaded."""
    folder = tmp_path / "lake_functions"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "columns.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("CHUNKMILL_UDF_MODULES", raising=False)
    monkeypatch.setattr(stored, "_known", {})
    yield folder
    _unload()


def _unload() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "lake_functions"]:
        del sys.modules[name]


def loaded() -> ModuleType:
    import importlib

    return importlib.import_module("lake_functions.columns")


def defined(name: str, **changed: Any) -> Definition:
    """The definition of a function of the package, in a process that has not loaded it."""
    found: Any = loaded()
    for part in name.split("."):
        found = getattr(found, part)
    metadata = {**metadata_of(found), **{f"virtual_column.{key}": value for key, value in changed.items()}}
    _unload()
    (Path(found.function.__code__.co_filename).with_suffix(".imported") if not found.is_class else Path("-")).unlink(
        missing_ok=True
    )
    made = Definition.of(pa.field("c", found.data_type, metadata=metadata))
    assert made is not None
    return made


# ------------------------------------------------------------------------------------------------------ what is there


def test_a_definition_is_names_a_digest_and_inputs() -> None:
    @udf(name="n", version="7", auto_backfill=True)
    def f(a: int, b: int) -> int:
        return a + b

    metadata = metadata_of(f)
    assert metadata == {
        "virtual_column": "true",
        "virtual_column.udf_name": "n",
        "virtual_column.udf_module": __name__,
        "virtual_column.udf_qualname": f.qualname,
        "virtual_column.udf_digest": f.digest,
        "virtual_column.udf_version": "7",
        "virtual_column.udf_inputs": '["a", "b"]',
        "virtual_column.auto_backfill": "true",
    }
    made = Definition.of(pa.field("c", pa.int64(), metadata=metadata))
    assert made == Definition("c", "n", __name__, f.qualname, f.digest, "7", ("a", "b"), True)
    assert Definition.of(pa.field("c", pa.int64())) is None
    assert Definition.of(pa.field("c", pa.int64(), metadata={"virtual_column": "false"})) is None


def test_columns_of_a_group_know_each_other() -> None:
    schema = pa.schema([("a", pa.int64())])
    for prefix in ("", "p_"):
        metadata = group_metadata(pair, prefix)
        for field in reversed(pair.outputs or ()):
            schema = schema.append(pa.field(prefix + field.name, field.type, metadata=metadata[field.name]))
    assert schema.names == ["a", "y", "x", "p_y", "p_x"]
    by_name = {field.name: Definition.of(field) for field in schema}
    assert by_name["x"].columns_in(schema) == by_name["y"].columns_in(schema) == ("x", "y")
    assert by_name["p_y"].columns_in(schema) == ("p_x", "p_y")
    assert by_name["x"].group != by_name["p_x"].group
    assert (by_name["x"].group_field, by_name["x"].group_fields) == ("x", ("x", "y"))
    renamed = schema.set(2, schema.field("x").with_name("z"))
    assert by_name["y"].columns_in(renamed) == ("z", "y")
    assert by_name["y"].columns_in(schema.remove(2)) == ("y",)


def test_a_function_of_a_batch_takes_what_it_does_not_fill() -> None:
    @udf(pa.int64())
    def whole(rows: pa.RecordBatch): ...

    field = pa.field("c", pa.int64(), metadata=metadata_of(whole))
    made = Definition.of(field)
    assert made.inputs is None
    assert made.inputs_of(pa.schema([("a", pa.int8()), field, ("b", pa.int8())])) == ("a", "b")
    assert Definition.of(pa.field("c", pa.int64(), metadata=metadata_of(pair))).inputs_of(pa.schema([])) == ("a",)


@pytest.mark.parametrize(
    "text", ["", "{", '"a"', "[1]", "{}", "[" * 100_000, '["a", ' * 1000, f'["{"a" * (1 << 20)}"]', "NaN"]
)
def test_metadata_that_is_no_definition_is_damage(text: str) -> None:
    metadata = {"virtual_column": "true", "virtual_column.udf_inputs": text}
    with pytest.raises(ReadError, match=r"udf_inputs of the column 'c' is not a list of names") as caught:
        Definition.of(pa.field("c", pa.int64(), metadata=metadata))
    assert len(str(caught.value)) < 400


def test_a_definition_of_something_else_is_read_and_cannot_be_used() -> None:
    metadata = {b"virtual_column": b"true", b"virtual_column.udf": b"_udfs/abc", b"virtual_column.udf_name": b"\xff"}
    made = Definition.of(pa.field("c", pa.int64(), metadata=metadata))
    assert (made.module, made.inputs) == ("", None)
    with pytest.raises(UsageError, match=r"the definition does not name a function in a module.*udf="):
        resolve(made, ["", "os"])


# ------------------------------------------------------------------------------------------------------ what is found


@pytest.mark.parametrize("allowed", ["lake_functions.columns", "lake_functions"])
def test_a_function_of_a_listed_module_is_found(package: Path, monkeypatch: pytest.MonkeyPatch, allowed: str) -> None:
    made = defined("doubled")
    found = resolve(made, [allowed])
    assert (package / "columns.imported").exists()
    assert found.compute(pa.record_batch({"a": [2]})).to_pylist() == [4]
    _unload()
    monkeypatch.setenv("CHUNKMILL_UDF_MODULES", f"other, {allowed} ,")
    assert resolve(made).digest == found.digest


def test_a_module_that_is_not_listed_is_not_imported(package: Path) -> None:
    made = defined("doubled")
    for allowed in (
        [],
        ["lake"],
        ["lake_functions.columns.more"],
        ["lake_functions.col"],
        [""],
        ["*"],
        ["lake_functions."],
    ):
        with pytest.raises(
            UsageError, match=r"'lake_functions.columns' is not in the list of modules that may be imported"
        ) as e:
            resolve(made, allowed)
        assert (
            "udf_modules=['lake_functions.columns'], by --module or in CHUNKMILL_UDF_MODULES; a backfill also takes"
            in str(e.value)
        )
    assert not (package / "columns.imported").exists()
    loaded()
    with pytest.raises(UsageError, match="is not in the list"):
        resolve(made)


def test_another_digest_is_told(package: Path) -> None:
    made = defined("doubled")
    (package / "columns.py").write_text(MODULE.replace("a * 2", "a * 3"))
    with pytest.raises(
        UsageError, match=r"'doubled' of the module 'lake_functions.columns' has another digest, .*udf= or"
    ):
        resolve(made, ["lake_functions"])


def test_what_is_not_there_is_told(package: Path) -> None:
    made = defined("doubled")
    (package / "columns.py").write_text("def doubled(a): return a * 2\n")
    with pytest.raises(UsageError, match=r"the module 'lake_functions.columns' has no UDF with the name 'doubled'"):
        resolve(made, ["lake_functions"])
    _unload()
    (package / "columns.py").write_text("1 / 0\n")
    with pytest.raises(UsageError, match=r"'lake_functions.columns' cannot be imported: ZeroDivisionError: division"):
        resolve(made, ["lake_functions"])
    _unload()
    (package / "columns.py").unlink()
    with pytest.raises(UsageError, match="cannot be imported: ModuleNotFoundError"):
        resolve(made, ["lake_functions"])


def test_functions_inside_of_classes_and_with_arguments_are_found(package: Path) -> None:
    for name, expected in (("Group.inner", [2]), ("ten", [20])):
        found: Any = loaded()
        for part in name.split("."):
            found = getattr(found, part)
        metadata = metadata_of(found)
        if name == "Group.inner":  # the module has the class itself by its name
            metadata["virtual_column.udf_qualname"] = name
        assert metadata["virtual_column.udf_qualname"] == name
        _unload()
        made = Definition.of(pa.field("c", pa.int64(), metadata=metadata))
        assert resolve(made, ["lake_functions"]).compute(pa.record_batch({"a": [2]})).to_pylist() == expected


def test_inputs_are_those_of_the_definition(package: Path) -> None:
    assert resolve(defined("doubled", udf_inputs='["b"]'), ["lake_functions"]).inputs == ("b",)
    assert resolve(defined("batches"), ["lake_functions"]).inputs is None
    with pytest.raises(UsageError, match="expects at most 1 parameters but 2 input_columns"):
        resolve(defined("doubled", udf_inputs='["a", "b"]'), ["lake_functions"])
    with pytest.raises(UsageError, match="names no input columns, but the function needs some"):
        resolve(defined("doubled", udf_inputs="null"), ["lake_functions"])


def test_a_function_that_this_process_remembers_needs_no_list(package: Path) -> None:
    local = loaded().made()
    made = Definition.of(pa.field("c", pa.int64(), metadata=metadata_of(local)))
    with pytest.raises(UsageError, match="does not name a function in a module"):
        resolve(made, ["lake_functions"])
    remember(local)
    assert resolve(made) is local
    other = Definition(**{**{name: getattr(made, name) for name in made.__slots__}, "digest": "0" * 64})
    with pytest.raises(UsageError):
        resolve(other)


def test_a_function_of_the_main_module_needs_no_list(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main = ModuleType("__main__")

    def tripled(a: int) -> int:
        return a * 3

    tripled.__module__, tripled.__qualname__ = "__main__", "tripled"
    main.tripled = udf(tripled)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "__main__", main)
    made = Definition.of(pa.field("c", pa.int64(), metadata=metadata_of(main.tripled)))
    assert resolve(made) is main.tripled
    del main.tripled
    with pytest.raises(
        UsageError, match=r"the module '__main__' has no UDF .*'tripled'\..*--udf 'MODULE:tripled'"
    ) as caught:
        resolve(made)
    assert 'also in a view: alter_columns({"path": "c", "udf": f}).' in str(caught.value)


# --------------------------------------------------------------------------------------------------- what never runs


class Canary:
    """Says so when anything of it is touched."""

    sung: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        self.sung.append(name)
        raise AttributeError(name)

    def __call__(self, *args: Any) -> Any:
        self.sung.append("called")


@pytest.mark.parametrize(
    ("module", "qualname"),
    [
        ("os", "system"),
        ("builtins", "eval"),
        ("builtins", "exec"),
        ("lake_functions.columns", "canary"),
        ("lake_functions.columns", "canary.function"),
        ("lake_functions.columns", "doubled.function"),
        ("lake_functions.columns", "doubled.__class__"),
        ("lake_functions.columns", "doubled.__call__.__globals__"),
        ("lake_functions.columns", "__loader__"),
        ("lake_functions.columns", "made.<locals>.local"),
        ("lake_functions.columns", "plain"),
        ("lake_functions.columns", "Path"),
        ("lake_functions.columns", "Path.home"),
        ("lake_functions.columns", ""),
        ("lake_functions.columns", "doubled."),
        ("lake_functions.columns", "doubled()"),
        ("lake_functions.columns", "doubled; import os"),
        ("lake_functions.__main__", "doubled"),
        ("lake_functions..columns", "doubled"),
        (".lake_functions.columns", "doubled"),
        ("lake_functions.columns ", "doubled"),
        ("lake_functions.columns:__class__", "doubled"),
        ("lake_functions/columns", "doubled"),
        ("lake_functions.missing\x00", "doubled"),
        ("x" * 10_000, "y" * 10_000),
        ("__main__", "os.system"),
        ("__main__", "__builtins__"),
    ],
)
def test_hostile_names_run_nothing(package: Path, monkeypatch: pytest.MonkeyPatch, module: str, qualname: str) -> None:
    made = defined("doubled")
    monkeypatch.setattr(os, "system", Canary())
    text = MODULE + "\nfrom test_definitions import Canary\ncanary = Canary()\n"
    (package / "columns.py").write_text(text)
    (package / "__main__.py").write_text("raise AssertionError('run')\n")
    Canary.sung.clear()
    values = {name: getattr(made, name) for name in made.__slots__}
    hostile = Definition(**{**values, "module": module, "qualname": qualname})
    with pytest.raises(UsageError) as caught:
        resolve(hostile, ["os", "builtins", "lake_functions"])
    assert len(str(caught.value)) < 700
    assert Canary.sung == []
    assert "lake_functions.__main__" not in sys.modules


def test_hostile_metadata_is_text_alone(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "sung",))

    from pyspark import cloudpickle

    code = cloudpickle.dumps(Bomb())
    keys = [
        "udf",
        "udf_name",
        "udf_module",
        "udf_qualname",
        "udf_digest",
        "udf_version",
        "unpack_group",
        "unpack_field",
    ]
    metadata = {b"virtual_column": b"true", **{f"virtual_column.{key}".encode(): code for key in keys}}
    made = Definition.of(pa.field("c", pa.int64(), metadata=metadata))
    with pytest.raises(UsageError):
        resolve(made, ["pathlib"])
    assert made.columns_in(pa.schema([pa.field("c", pa.int64(), metadata=metadata)])) == ("c",)
    assert json.dumps(made.udf_name)
    assert not (tmp_path / "sung").exists()
