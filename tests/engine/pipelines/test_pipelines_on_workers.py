"""The code of a pipeline's file on workers that cannot import it."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from chunkmill.engine import Chunk, ComponentColumn, LazyChunkStream, PipelineError, load_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CALIBRATION = """
from enum import Enum

class Side(Enum):
    LEFT = "/left"

def moved(chunk, side):
    assert side is Side.LEFT
    return chunk.with_entity_path(side.value + chunk.entity_path)
"""

PIPELINE = """
import calibration
from calibration import Side
from chunkmill.engine import LazyChunkStream

SIDE = Side.LEFT

class Mover:
    def __init__(self, side):
        self.side = side

    def __call__(self, chunk):
        return calibration.moved(chunk, self.side)

def helper(chunk):
    return Mover(SIDE)(chunk)

def pipeline(stream: LazyChunkStream) -> LazyChunkStream:
    a, b = stream.split(content="/a")
    return LazyChunkStream.merge(a.map(helper), b.flat_map(lambda chunk: [Mover(SIDE)(chunk), chunk]))

def fails(stream):
    return stream.map(lambda chunk: {}[chunk.entity_path])
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "calibration.py").write_text(CALIBRATION, encoding="utf-8")
    (tmp_path / "pipeline.py").write_text(PIPELINE, encoding="utf-8")
    return tmp_path / "pipeline.py"


def stream() -> LazyChunkStream:
    return LazyChunkStream.from_iter([Chunk.from_columns(p, [], [ComponentColumn("x", [1])]) for p in ("/a", "/b")])


def test_functions_classes_and_modules_of_the_folder_run_in_sparks_workers(spark: SparkSession, path: Path) -> None:
    made = load_pipeline(path).apply(stream())
    paths = {c.entity_path for c in made.to_chunks(executor="spark")}
    assert paths == {"/left/a", "/left/b", "/b"}


def test_an_error_in_a_worker_comes_with_the_line_of_the_file(spark: SparkSession, path: Path) -> None:
    loaded = load_pipeline(f"{path}:fails")
    with pytest.raises(KeyError) as caught:
        loaded.apply(stream()).to_chunks(executor="spark")
    line = PIPELINE.splitlines().index("    return stream.map(lambda chunk: {}[chunk.entity_path])") + 1
    assert str(loaded.explained(caught.value)) == f"CM401: {path}: line {line}: KeyError: '/a'."


def test_a_fresh_process_without_the_folder_can_run_what_was_packed(path: Path, tmp_path: Path) -> None:
    from chunkmill.engine.execution.spark_stage import register_by_value
    from chunkmill.engine.stream.lazy_stream import sink_of
    from chunkmill.engine.stream.plan import compile_plan
    from pyspark import cloudpickle

    plan = compile_plan(sink_of(load_pipeline(path).apply(LazyChunkStream.from_iter([]))))
    register_by_value()
    packed = tmp_path / "packed"
    packed.write_bytes(cloudpickle.dumps(plan.chains))
    program = (
        "import sys; from pathlib import Path; from pyspark import cloudpickle\n"
        "from chunkmill.engine import Chunk, ComponentColumn\n"
        f"(chain,) = cloudpickle.loads(Path({str(packed)!r}).read_bytes())\n"
        "chunk = Chunk.from_columns('/a', [], [ComponentColumn('x', [1])])\n"
        "print([c.entity_path for c in chain(chunk)], 'calibration' in sys.modules)"
    )
    (path.parent / "calibration.py").unlink()
    path.unlink()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "['/left/a'] False", done.stderr


def test_a_module_beside_the_file_that_the_program_has_imported_itself_travels_too(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from chunkmill.engine.execution.spark_stage import register_by_value
    from pyspark import cloudpickle

    monkeypatch.syspath_prepend(str(path.parent))
    own = importlib.import_module("calibration")
    assert b"with_entity_path" not in cloudpickle.dumps(own.moved)
    assert load_pipeline(path).function.__globals__["calibration"] is own
    register_by_value()
    assert b"with_entity_path" in cloudpickle.dumps(own.moved)
    cloudpickle.unregister_pickle_by_value(own)
    del sys.modules["calibration"]


def test_a_package_that_imports_itself_by_name_is_refused_with_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("")
    (tmp_path / "parts" / "other.py").write_text("def same(chunk):\n    return chunk\n")
    (tmp_path / "pipeline.py").write_text("from parts.one import f\ndef pipeline(s):\n    return s.map(f)\n")
    for text, travels in (
        ("import parts.other\ndef f(chunk):\n    return parts.other.same(chunk)\n", False),
        ("from . import other\ndef f(chunk):\n    return other.same(chunk)  #\n", True),
    ):
        (tmp_path / "parts" / "one.py").write_text(text)
        loaded = load_pipeline(tmp_path / "pipeline.py")
        if travels:
            loaded.check_travels(loaded.apply(stream()))
            continue
        with pytest.raises(PipelineError, match=r"write `from \.other import name` instead"):
            loaded.check_travels(loaded.apply(stream()))


def test_what_cannot_travel_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.py"
    path.write_text(
        "import threading\nLOCK = threading.Lock()\ndef locked(chunk):\n    with LOCK:\n        return chunk\n"
        "def pipeline(stream):\n    return stream.map(locked)\n",
        encoding="utf-8",
    )
    loaded = load_pipeline(path)
    with pytest.raises(
        PipelineError, match=r"map\(locked\) cannot be sent to Spark's workers: TypeError: .*lock"
    ) as caught:
        loaded.check_travels(loaded.apply(stream()))
    assert caught.value.path == str(path)
