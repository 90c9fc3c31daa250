"""Functions that are classes, and how functions travel to other processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from chunkmill.engine.errors import PipelineError, UsageError
from chunkmill.engine.execution import check_travels
from chunkmill.engine.tables import FunctionKind, Skip, guarded_compute, udf
from pyspark import cloudpickle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = pa.record_batch({"a": [1, 2]})

EVENTS: list[str] = []


class Model:
    """Adds what it was made with."""

    def __init__(self, more: int = 0, *, label: str = "plain") -> None:
        EVENTS.append(f"made {label}")
        self.more, self.label = more, label

    def preprocess(self) -> None:
        EVENTS.append("prepared")
        self.more += 100

    def __call__(self, a: int) -> int:
        return a + self.more


@pytest.fixture(autouse=True)
def _forget() -> None:
    EVENTS.clear()


def test_a_class_is_made_once_when_it_first_computes() -> None:
    model = udf(Model)
    assert (model.name, model.kind, model.inputs, model.is_class) == ("Model", FunctionKind.SCALAR, ("a",), True)
    assert model.compute(ROWS.slice(0, 0)).to_pylist() == []
    assert EVENTS == []
    assert model.compute(ROWS).to_pylist() == [101, 102]
    assert model.with_inputs(["a"]).compute(ROWS).to_pylist() == [101, 102]
    assert EVENTS == ["made plain", "prepared"]


def test_threads_share_the_one_object() -> None:
    model = udf(Model)
    barrier = threading.Barrier(4)

    def compute(_: int) -> list:
        barrier.wait()
        return model.compute(ROWS).to_pylist()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(compute, range(4))) == [[101, 102]] * 4
    assert EVENTS == ["made plain", "prepared"]


def test_a_class_is_called_with_the_arguments_of_its_constructor() -> None:
    model = udf(Model)
    ten = model(10, label="ten")
    assert EVENTS == []
    assert ten.compute(ROWS).to_pylist() == [111, 112]
    assert ten(5) == 115
    assert model.compute(ROWS).to_pylist() == [101, 102]
    assert EVENTS == ["made ten", "prepared", "made plain", "prepared"]
    assert len({model.digest, ten.digest, model(11).digest}) == 3
    assert (ten.version, model(10, label="ten").digest) == (ten.digest, ten.digest)
    assert model().digest == model.digest


def test_arguments_that_have_no_text_need_a_version() -> None:
    with pytest.raises(UsageError, match=r"because they are not plain values.*Give a `version=`"):
        udf(Model)(object())
    assert udf(version="1")(Model)(object()).version == "1"


def test_a_class_that_fails_to_be_made_is_tried_again() -> None:
    class Late:
        tries = 0

        def __init__(self) -> None:
            type(self).tries += 1
            if self.tries == 1:
                raise ConnectionError("not yet")

        def __call__(self, a: int) -> int:
            return a

    late = udf(Late)
    with pytest.raises(ConnectionError, match="not yet"):
        late.compute(ROWS)
    assert late.compute(ROWS).to_pylist() == [1, 2]


def test_the_objects_used_last_are_kept() -> None:
    models = [udf(Model) for _ in range(9)]
    for model in models:
        model.compute(ROWS)
    models[-1].compute(ROWS)
    models[1].compute(ROWS)
    assert EVENTS.count("prepared") == 9
    models[0].compute(ROWS)
    assert EVENTS.count("prepared") == 10


def test_a_class_of_arrays() -> None:
    class Plus:
        def __call__(self, a: pa.Array) -> pa.Array:
            return pa.array([value + 1 for value in a.to_pylist()])

    plus = udf(pa.int64())(Plus)
    assert plus.kind is FunctionKind.ARRAY
    assert plus.compute(ROWS).to_pylist() == [2, 3]
    inherited = udf(pa.int64())(type("Child", (Plus,), {}))
    assert inherited.compute(ROWS).to_pylist() == [2, 3]


# ------------------------------------------------------------------------------------------------------------ travel

SCRIPT = """
import pyarrow as pa, sys
import beside, package.inner
from beside import Worse
from chunkmill.engine.tables import Columns, Skip, udf
from pathlib import Path
from pyspark import cloudpickle
from typing import NamedTuple

SCALE = 10
class Pair(NamedTuple):
    x: int
    y: int
@udf(on_error=[Skip(Worse)])
def pair(a: int) -> Columns[Pair]:
    return Pair(beside.plus(a) * SCALE, package.inner.minus(a))
@udf
class Model:
    def __init__(self) -> None:
        super().__init__()
        self.by = beside.BY
    def __call__(self, a: int) -> int:
        return a * self.by
plain = udf(beside.plus)
rows = pa.record_batch({"a": [1, 2]})
functions = [pair, Model, plain, beside.decorated]
Path("packed").write_bytes(cloudpickle.dumps(functions))
print([one.digest for one in functions])
"""

BESIDE = """
from chunkmill.engine.tables import udf
BY = 3
class Worse(Exception):
    pass
def plus(a: int) -> int:
    return a + 1
@udf
def decorated(a: int) -> int:
    return plus(a) * BY
"""

READER = """
import sys, pyarrow as pa
from pathlib import Path
from pyspark import cloudpickle
functions = cloudpickle.loads(Path(sys.argv[1]).read_bytes())
print([one.compute(pa.record_batch({"a": [1, 2]})).to_pylist() for one in functions])
print([one.digest for one in functions])
print("beside" in sys.modules, "package" in sys.modules, functions[0].policy[0].exceptions[0].__name__)
"""


def test_functions_of_a_script_travel_with_the_modules_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "script"
    (folder / "package").mkdir(parents=True)
    (folder / "package" / "__init__.py").write_text("")
    (folder / "package" / "inner.py").write_text("def minus(a):\n    return a - 1\n")
    (folder / "beside.py").write_text(BESIDE)
    (folder / "script.py").write_text(SCRIPT)
    made = subprocess.run([sys.executable, "script.py"], cwd=folder, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    packed = (folder / "packed").rename(tmp_path / "packed")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    read = subprocess.run(
        [sys.executable, "-c", READER, str(packed)], cwd=elsewhere, capture_output=True, text=True, check=False
    )
    assert read.stdout.splitlines() == [
        "[[{'x': 20, 'y': 0}, {'x': 30, 'y': 1}], [3, 6], [2, 3], [6, 9]]",
        made.stdout.strip(),
        "False False Worse",
    ], read.stderr


def test_what_is_installed_goes_by_its_name() -> None:
    import json

    installed = udf(pa.string(), input_columns=["a"])(json.dumps)
    assert b"skipkeys" not in cloudpickle.dumps(installed)
    assert installed.compute(ROWS).to_pylist() == ["1", "2"]


def test_what_cannot_travel_is_said() -> None:
    lock: Any = threading.Lock()

    @udf
    def locked(a: int) -> int:
        with lock:
            return a

    with pytest.raises(PipelineError, match=r"the column 'c' cannot be sent to Spark's workers: TypeError.*'lock'"):
        check_travels(locked, "the column 'c'")


def test_a_worker_makes_one_object_and_interrupts_rows(spark: SparkSession, tmp_path: Path) -> None:
    @udf(pa.int64(), timeout=0.3, input_columns=["id"], on_error=[Skip(TimeoutError)])
    class Noted:
        def __init__(self) -> None:
            (tmp_path / f"{os.getpid()} {time.monotonic_ns()}").touch()

        def __call__(self, row: int) -> int:
            time.sleep(30 if row == 5 else 0)
            return os.getpid()

    def compute(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in batches:
            values, failed = guarded_compute(Noted, rows, rows.column(0).to_pylist())
            skipped = {failure.row_address for failure in failed}
            yield pa.record_batch(
                {"id": rows.column(0), "pid": values, "late": [row in skipped for row in rows.column(0).to_pylist()]}
            )

    found = spark.range(0, 8, 1, 4).mapInArrow(compute, "id long, pid long, late boolean").collect()
    assert sorted(row.id for row in found) == list(range(8))
    assert [row.id for row in found if row.late] == [row.id for row in found if row.pid is None] == [5]
    pids = {row.pid for row in found} - {None}
    assert os.getpid() not in pids
    made = [int(path.name.split()[0]) for path in tmp_path.iterdir()]
    assert len(made) == len({*made})
    assert pids <= {*made}


def test_arguments_that_the_constructor_does_not_take_are_refused_at_once() -> None:
    @udf
    class Times:
        def __init__(self, factor: int) -> None:
            self.factor = factor

        def __call__(self, a: int) -> int:
            return a * self.factor

    assert Times(factor=3).compute(pa.record_batch({"a": [2]})).to_pylist() == [6]
    for call in (lambda: Times(), lambda: Times(1, 2), lambda: Times(factors=3)):
        with pytest.raises(TypeError, match="argument"):
            call()
