"""The Spark executor: a pipeline as one ``mapInArrow`` stage, and the pickling of functions and exceptions.

Only a number goes through the JVM to a task, and chunk rows come back; files are opened, decoded and written inside the
task. Between two tasks a worker waits 10 to 20 ms for the JVM, longer than a small split takes. So with many splits,
one Spark task runs several neighbours. This changes neither the splits nor the output.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import gc
import inspect
import json
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import pyarrow as pa

from ..errors import ERRORS, ChunkmillError, PipelineError, SessionError, SessionStartError, error_from_dict
from ..limits import MIB
from ..spark import Terminated, interrupt_behind, interruptible, is_local, said_by_cluster, waiting_for_jobs
from ..task_context import as_task
from .work import SPARK_SCHEMA, Task, noting_task, spark_serializer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_TRAVELS = (
    "Objects that a function refers to are sent with it. Create such objects inside the function, or run in this "
    'process, with executor="inline".'
)
_GOES_ROUND = (
    "Modules that import each other cannot be sent: in a package next to the pipeline's file, write `from .other "
    "import name` instead of `import package.other`."
)

_waiting: list[ModuleType] = []


def send_by_value(module: ModuleType) -> None:
    """Send functions and classes of ``module`` to tasks with their code, instead of by name.

    The module must be in ``sys.modules``. This does not import pyspark; see :func:`register_by_value`.
    """
    _waiting.append(module)


def register_by_value() -> None:
    """Register the modules of :func:`send_by_value` with Spark's serializer, before anything is serialized."""
    if not _waiting:
        return
    from pyspark import cloudpickle

    while _waiting:
        module = _waiting.pop()
        if sys.modules.get(module.__name__) is module:  # else it is pickled by value anyway
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def check_travels(thing: Any, name: str) -> None:
    """Raise ``PipelineError`` if ``thing``, called ``name`` in the error, cannot be sent to tasks."""
    register_by_value()
    error = _refusal(thing)
    if error is not None:
        raise _stays(thing, name, error) from error


@contextmanager
def sending(thing: Any) -> Iterator[None]:
    """Name the culprit in a ``PipelineError`` if Spark cannot pickle ``thing`` in the block."""
    try:
        yield
    except Exception as error:
        refusal = _refusal(thing)
        if refusal is None:
            raise
        raise _stays(thing, "the pipeline", refusal) from error


def _refusal(thing: Any) -> Exception | None:
    """Return the reason why ``thing`` cannot be pickled, or None."""
    from pyspark import cloudpickle

    try:
        cloudpickle.dumps(thing)  # type: ignore[no-untyped-call]
    except Exception as error:  # noqa: BLE001 (pickled objects may raise anything)
        return error
    return None


def _stays(thing: Any, name: str, error: Exception) -> PipelineError:
    """Return the error for a ``thing`` that cannot be pickled: it names the step, its function, and the objects that
    this refers to.
    """
    function: FunctionType | None = None
    place = ""
    seen: set[int] = set()
    while True:
        seen.add(id(thing))
        blamed = ((label, part) for label, part in _contents(thing) if id(part) not in seen and _refusal(part))
        label, part = next(blamed, ("", None))
        if not label:
            break
        thing, place = part, place + label
        if isinstance(thing, FunctionType):
            function, place = thing, ""
        elif hasattr(thing, "describe"):
            name, place = thing.describe(), ""
    reason = _refusal(thing) or error
    said = f"{type(reason).__name__}: {' '.join(str(reason).split())}"
    if place:
        of = ""
        if function is not None:
            code = function.__code__
            of = f" of the function {code.co_qualname} ({code.co_filename}, line {code.co_firstlineno})"
        said += f"; this is {place.lstrip('.')!r}{of}"
    hint = _GOES_ROUND if "recursion" in said else _TRAVELS
    return PipelineError(f"{name} cannot be sent to Spark's workers: {said}", hint=hint)


def _contents(thing: Any) -> Iterator[tuple[str, Any]]:
    """The objects that are pickled with ``thing``, each with the access path from it."""
    if isinstance(thing, FunctionType):
        cells = inspect.getclosurevars(thing)
        for name, value in {**cells.globals, **cells.nonlocals}.items():
            yield f".{name}", value
        for value in (*(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values()):
            yield ".(default)", value
    elif isinstance(thing, MethodType):
        yield ".self", thing.__self__
    elif isinstance(thing, Mapping):
        yield from ((f"[{key!r}]", value) for key, value in thing.items())
    elif isinstance(thing, (tuple, list, set, frozenset)):
        yield from ((f"[{at}]", value) for at, value in enumerate(thing))
    elif isinstance(thing, functools.partial):
        yield from ((f".{name}", getattr(thing, name)) for name in ("func", "args", "keywords"))
    elif not isinstance(thing, (type, ModuleType)):
        names = {
            *getattr(thing, "__dict__", ()),
            *(n for c in type(thing).__mro__ for n in getattr(c, "__slots__", ())),
        }
        yield from ((f".{name}", getattr(thing, name)) for name in sorted(names) if hasattr(thing, name))


_MOST_PACKED: Final = 1 << 20
"""The largest pickle of an exception for the driver, in bytes; of larger ones, only the text is sent."""


def is_transient(error: BaseException) -> bool:
    """Return whether a retry of the task, on another worker, may help."""
    if isinstance(error, ChunkmillError):
        return error.transient
    return isinstance(error, (ConnectionError, TimeoutError, InterruptedError))


def failure_to_dict(error: BaseException, label: str) -> dict[str, Any]:
    """Convert an error to JSON data, with its split and traceback."""
    data = {
        "name": type(error).__qualname__,
        "text": str(error),
        "notes": [note for note in getattr(error, "__notes__", ()) if isinstance(note, str)],
        "label": label,
        "traceback": "".join(traceback.format_exception(error)),
    }
    if isinstance(error, ChunkmillError) and type(error) in ERRORS:
        return {**data, "own": error.to_dict()}
    return {**data, "packed": _packed(error)}


def failure_from_dict(data: dict[str, Any]) -> BaseException:
    """Return the exception to raise on the driver for the result of :func:`failure_to_dict`."""
    error = error_from_dict(data["own"]) if "own" in data else _unpacked(data["packed"])
    if error is None:
        said = ": ".join(filter(None, (data["name"], data["text"])))
        error = PipelineError(f"a function of the pipeline raised {said}")
    for note in data["notes"]:
        add_note(error, note)
    add_note(error, f"In the task for {data['label']}:\n{data['traceback'].rstrip()}")
    return error


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an exception, once."""
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def _packed(error: BaseException) -> str | None:
    """The exception's class, and its arguments and attributes if they can be pickled, or None."""
    for parts in _parts(error):
        with contextlib.suppress(Exception):
            packed: bytes = spark_serializer().dumps(parts)
            if len(packed) <= _MOST_PACKED:
                return base64.b64encode(packed).decode()
    return None


def _parts(error: BaseException) -> Iterator[tuple[Any, ...]]:
    """Class, arguments and attributes, then fewer of these, for the case that they cannot be pickled."""
    kind = type(error)
    reduced = error.__reduce__()
    if isinstance(reduced, tuple) and reduced[0] is kind:
        yield kind, *reduced[1:3]
    yield kind, error.args, vars(error)
    yield kind, error.args
    yield kind, (str(error),)


def _unpacked(packed: str | None) -> BaseException | None:
    if packed is None:
        return None
    try:
        kind, args, *state = spark_serializer().loads(base64.b64decode(packed))
        base = kind
        while base.__module__ != "builtins":
            base = base.__base__
        error: BaseException = kind.__new__(kind, *args)
        base.__init__(error, *args)
        for attributes in filter(None, state):
            error.__setstate__({k: v for k, v in attributes.items() if k != "__notes__"})
    except Exception:  # noqa: BLE001 (an unusual class, or one of a module that is missing here)
        return None
    return error if isinstance(error, (Exception, SystemExit)) else None


_TAG = "chunkmill"
_TOLD: Final = "partition int, place int, told string, failure string"
_SHARE_LOST = re.compile(r"Task (\d+) in stage")
_IN_PYTHON = {sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib", "platstdlib")}
_spared = 0


class StageJob(Protocol):
    """The function of a stage, called with a task's number. Can be pickled."""

    def run(self, index: int) -> Iterator[pa.RecordBatch]:
        """The rows of task ``index``."""
        ...


class TaskJob(StageJob, Protocol):
    """A job that can list the tasks that were running when Spark gave up."""

    def begun(self) -> set[int]:
        """The tasks that began and did not end, if visible."""
        ...


def run_spark(
    spark: SparkSession,
    job: TaskJob,
    tasks: Sequence[Task],
    *,
    dealt: bool = True,
    numbers: Sequence[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The chunk rows of all tasks, after the stage. An interrupt cancels the stage.

    With ``dealt``, a Spark task may run several tasks. ``numbers`` are their numbers in ``job``, by default from 0.
    """
    slots = slots_of(spark) if dealt else None
    starts = range(len(tasks) + 1) if slots is None else shares([task.size for task in tasks], slots)
    try:
        yield from rows_of(spark, stage_of(spark, job, starts, SPARK_SCHEMA, numbers))
    except SessionError as error:
        share = _SHARE_LOST.search(str(error.__cause__))
        if share is not None and error.transient:
            error.message += f", in the task for {_labels(job, tasks, starts, int(share[1]))}"
        raise


def stage_of(
    spark: SparkSession,
    job: StageJob,
    starts: Sequence[int],
    schema: str | StructType,
    numbers: Sequence[int] | None = None,
) -> DataFrame:
    """Make a ``mapInArrow`` stage; each task runs ``job`` for the ``numbers`` from one of ``starts`` to the next.

    Raises ``PipelineError`` if ``job`` cannot be sent to tasks.
    """
    register_by_value()
    count = len(starts) - 1
    shared = spark.range(0, count, 1, max(count, 1))
    run = functools.partial(run_tasks, job, tuple(starts), None if numbers is None else tuple(numbers))
    with sending(job):
        return shared.mapInArrow(run, _parsed(schema) if isinstance(schema, str) else schema)


def told_by_partitions(
    frame: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[str]], label: str
) -> list[str]:
    """Run ``function`` on the rows of each partition of a user's DataFrame; return its results in partition order.

    The rows themselves are not returned. Raises the first error of ``function``, and ``SessionError`` if the stage
    failed.
    """
    register_by_value()
    with sending(function):
        stage = frame.mapInArrow(functools.partial(_tell, function, label), _TOLD)
    rows = [row for batch in rows_of(frame.sparkSession, stage) for row in batch.to_pylist()]
    failed = [row for row in rows if row["failure"] is not None]
    if failed:
        raise failure_from_dict(json.loads(min(failed, key=lambda row: row["partition"])["failure"]))
    return [row["told"] for row in sorted(rows, key=lambda row: (row["partition"], row["place"]))]


def _tell(
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[str]], label: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run the function of the stage. Our errors become rows, as Spark would retry work that cannot succeed."""
    from pyspark import TaskContext

    context = TaskContext.get()
    partition = context.partitionId() if context is not None else 0
    with noting_task(f"partition {partition} of {label}"):
        texts: list[str] = []
        failure = None
        try:
            texts = list(function(batches))
        except ChunkmillError as error:
            failure = json.dumps(failure_to_dict(error, f"partition {partition} of {label}"))
        count = len(texts) if failure is None else 1
        columns = {
            "partition": pa.array([partition] * count, pa.int32()),
            "place": pa.array(range(count), pa.int32()),
            "told": pa.array(texts if failure is None else [None], pa.string()),
            "failure": pa.array([failure] * count, pa.string()),
        }
        yield pa.RecordBatch.from_pydict(columns)


def tries_of(spark: SparkSession) -> int:
    """The number of times that Spark tries a task."""
    master = spark.conf.get("spark.master", None) or ""
    if is_local(master):
        match = re.search(r",\s*(\d+)\s*\]", master)
        return int(match[1]) if match else 1
    return int(spark.conf.get("spark.task.maxFailures", None) or 4)


def _labels(job: TaskJob, tasks: Sequence[Task], starts: Sequence[int], share: int) -> str:
    """The inputs of the tasks that a dead worker may have run: those in its share that had begun, or else the share."""
    mine = tasks[starts[share] : starts[share + 1]]
    begun = job.begun()
    return " or ".join([task.label for task in mine if task.index in begun] or [task.label for task in mine])


def cores_of(spark: SparkSession) -> int | None:
    """Return the number of tasks that Spark runs at once; None in Spark Connect, which does not report it."""
    from pyspark.errors import PySparkException

    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkException:
        return None


def slots_of(spark: SparkSession) -> int | None:
    """The number of tasks that run at once, or None unless Spark's workers are on this machine, where it is fixed."""
    cores = cores_of(spark)
    return cores if cores is not None and is_local(spark.sparkContext.master or "") else None


@functools.cache
def _parsed(schema: str) -> StructType:
    """A schema as Spark's type, cached, as parsing takes a round trip to the JVM."""
    from pyspark.sql.types import StructType

    return cast("StructType", StructType.fromDDL(schema))


def rows_of(spark: SparkSession, stage: DataFrame) -> Iterator[pa.RecordBatch]:
    """The rows of a stage, after its end. An interrupt cancels it."""
    with interruptible():
        table = _table_of(spark, stage)
    yield from table.to_batches()


def _table_of(spark: SparkSession, stage: DataFrame) -> pa.Table:
    spark.addTag(_TAG)
    try:
        with waiting_for_jobs():
            return stage.toArrow()
    except (KeyboardInterrupt, Terminated):
        spark.interruptTag(_TAG)
        raise
    except Exception as error:
        interrupt = interrupt_behind(error)
        if interrupt is not None:
            raise type(interrupt) from None
        raise _session_error(error) from error
    finally:
        spark.removeTag(_TAG)


def run_tasks(
    job: StageJob, starts: Sequence[int], numbers: Sequence[int] | None, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The body of the stage: run the tasks of the shares with the received numbers."""
    for batch in batches:
        for share in batch.column(0).to_pylist():
            for index in range(starts[share], starts[share + 1]):
                yield from as_task(job.run(index if numbers is None else numbers[index]))
    _spare_modules()


def _spare_modules() -> None:
    """Exclude this worker's imports from garbage collection, which runs after every task and would take 10 ms."""
    global _spared
    if len(sys.modules) > _spared:
        gc.freeze()
        _spared = len(sys.modules)


def _session_error(error: Exception) -> SessionError:
    """A short error for any error of Spark; the Java trace stays in its cause.

    An error of the workers' interpreter or the whole application does not concern an input: it is a
    ``SessionStartError``.
    """
    text = str(error)
    lost = any("Python worker exited unexpectedly" in line or "crashed" in line for line in text.splitlines())
    if lost:
        return SessionError(
            "the Spark stage failed: a Python worker ended unexpectedly",
            hint="A Python worker was killed, and no retries are left. If memory is short, give Spark fewer cores, or "
            "tasks more retries (a master such as local[2,4]).",
            transient=True,
        )
    executor = _EXECUTOR.search(text)
    if executor is not None:
        said = f"executor {executor[1]} was lost: {executor[2].strip()[:_LONGEST]}"
        return SessionError(f"the Spark stage failed: {said}", hint=_loss_hint(said), transient=True)
    if "java.lang.OutOfMemoryError" in text:
        return SessionError(f"the Spark stage failed: {_reason(text)}", hint=_loss_hint("exit code 52"))
    no_python = re.search(r'Cannot run program "([^"]+)"', text)
    if no_python is not None:
        return SessionStartError(
            f"Spark's workers cannot be started: {no_python[1]} does not exist",
            hint="Set PYSPARK_PYTHON or spark.pyspark.python to a Python with chunkmill before the session starts.",
        )
    missing = re.search(r"ModuleNotFoundError: No module named '([\w.]+)'", text)
    if missing is not None and missing[1].partition(".")[0] in _OURS:
        return SessionStartError(f"Spark's workers cannot be used: {_reason(text)}", hint=_missing_hint(missing[1]))
    if any(words in text for words in _ENDED):
        said = said_by_cluster()
        return SessionStartError(
            f"Spark ended: {said or _reason(text)}",
            hint="Executor logs are on the workers, in the application's file 'stderr' below the folder 'work'.",
        )
    hint = "Run with --debug for Spark's own report." if missing is None else _missing_hint(missing[1])
    return SessionError(f"the Spark stage failed: {_reason(text)}", hint=hint)


_EXECUTOR: Final = re.compile(r"ExecutorLostFailure \(executor (\S+) [^)\n]*\) Reason: ([^\n]+)")
_CODE: Final = re.compile(r"(?:code|status):? ?(\d+)", re.IGNORECASE)
_OF_CODES: Final = {
    "137": "It was killed, probably because its machine or container ran out of memory. Most memory is used by Python: "
    "raise spark.executor.memoryOverhead and the limit of the container, or give an executor fewer cores.",
    "143": "It was terminated, for example by a scheduler. Run again, or give tasks more retries "
    "(spark.task.maxFailures).",
    "52": "The JVM had no memory left: raise spark.executor.memory, or spark.driver.memory for the driver.",
}
"""Hints by the exit codes of executors."""


def _loss_hint(reason: str) -> str:
    """The hint for the reason why Spark lost an executor.

    >>> _loss_hint("Command exited with code 137")[:18]
    'It was killed, pro'
    """
    code = _CODE.search(reason)
    known = "137" if "memory limits" in reason or "OOM" in reason else code[1] if code is not None else ""
    return _OF_CODES.get(known, "Its log is on the worker, in the application's file 'stderr' below the folder 'work'.")


_OURS: Final = ("chunkmill", "pyspark", "pyarrow", "numpy")
"""Packages without which no task can run."""

_ENDED: Final = ("SparkContext was shut down", "stopped SparkContext", "SparkContext has been shutdown")
_LOST: Final = re.compile(r"most recent failure: Lost task [^:]*: (.+)")
_WRAPPING: Final = ("Exception thrown in awaitResult", "An error occurred while calling")
_JAVA_NAME: Final = re.compile(r"^:?\s*(?:Caused by: )?(?:(?:[a-z_]\w*\.)+\w+(?:\$\w+)*:\s*)*")
_LONGEST: Final = 300


def _reason(text: str) -> str:
    """The line of a Java trace with the reason, without Java class names.

    >>> _reason("An error occurred while calling o5.x.\\n: a.b.SparkException: Exception thrown in awaitResult:\\n"
    ...     "\\tat x\\nCaused by: java.io.IOException: Stream is corrupted")
    'Stream is corrupted'
    """
    lost = _LOST.search(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    candidates = [lost[1]] if lost is not None else []
    candidates += [line for line in lines if "Error" in line or "Exception" in line]
    whole = [line for line in candidates or lines if not any(words in line for words in _WRAPPING)]
    said = whole[0] if whole else repr(text)
    return (_JAVA_NAME.sub("", said) or said)[:_LONGEST]


def _missing_hint(module: str) -> str:
    """The hint for a module that workers cannot import."""
    here = sys.modules.get(module.partition(".")[0])
    places = list(getattr(here, "__path__", ())) or [getattr(here, "__file__", None) or ""]
    folder = next((str(Path(place).parent) for place in places if place), None)
    if folder in {str(Path(entry).absolute()) for entry in sys.path} - _IN_PYTHON:
        return (
            f"It was imported from {folder}. Workers use the sys.path of the session's start: stop the session, add "
            'this folder to sys.path or PYTHONPATH, and start again; or use executor="inline".'
        )
    return (
        f"The Python of the workers has no {module}. Install chunkmill there, or set PYSPARK_PYTHON to another "
        "interpreter before the session starts."
    )


_MOST: Final = 4
_MOST_BYTES: Final = 256 * MIB
"""The most source bytes of one Spark task: if its worker dies, all of it is repeated."""

_LATER: Final = 8
"""A share has at most 1/8 of the remaining tasks per slot: bytes do not determine a task's duration, and the run should
not wait for one slot with several long tasks."""


def shares(sizes: Sequence[int], slots: int) -> list[int]:
    """The bounds of shares of neighbouring tasks, for ``slots`` concurrent ones.

    ``sizes`` are the tasks' source bytes.

    >>> shares([20 << 20] * 40, 2)[:8]
    [0, 2, 4, 6, 8, 10, 11, 12]
    >>> shares([20 << 20] * 40, 16) == list(range(41))
    True
    """
    starts = [0]
    while (start := starts[-1]) < len(sizes):
        most = min((len(sizes) - start) // (_LATER * slots), _MOST)
        held = accumulate(sizes[start : start + most])
        starts.append(start + max(1, sum(size <= _MOST_BYTES for size in held)))
    return starts
