"""What lies beside a table is data, whoever wrote it: nothing of it runs, and what is damaged is done without."""

from __future__ import annotations

import json
import marshal
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill.engine.errors import ChunkmillError, JobFailedError, ReadError, UsageError
from chunkmill.engine.rrd import digest_of
from chunkmill.engine.tables import Table, skip_on_error, udf

ROWS = 14
SMALL: dict[str, Any] = {"checkpoint_size": 2, "batch_checkpoint_flush_interval_seconds": 0}


class _Canary:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (str(self._path), "w"))


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A file that is there once something has run; that it would be is made sure of."""
    path = tmp_path / "canary"
    pickle.loads(pickle.dumps(_Canary(path))).close()
    path.unlink()
    exec(marshal.loads(marshal.dumps(_code(path))))
    path.unlink()
    return path


def _code(path: Path) -> Any:
    return compile(f"open({str(path)!r}, 'w').close()", "canary", "exec")


def payloads(path: Path) -> list[bytes]:
    """Bytes that would make the file."""
    canary = _Canary(path)
    return [
        pickle.dumps(canary),
        pickle.dumps(canary, 0),
        cloudpickle.dumps(path.touch),
        cloudpickle.dumps(canary),
        marshal.dumps(_code(path)),
        json.dumps({"py/reduce": ["builtins.open", [str(path), "w"]]}).encode(),
        f"__import__('os').system('touch {path}')".encode(),
    ]


def doubling(fails_at: int | None = None, calls: Path | None = None, **options: Any) -> Any:
    @udf(version="1", name="doubling", **options)
    def function(a: int) -> int:
        if calls is not None:
            with calls.open("a") as file:
                file.write(f"{a}\n")
        if a == fails_at:
            raise ValueError(f"no {a}")
        return a * 2

    return function


@pytest.fixture
def table(tmp_path: Path) -> Table:
    lance.write_dataset(pa.table({"a": range(ROWS)}), tmp_path / "t.lance", enable_stable_row_ids=True)
    return Table(str(tmp_path / "t.lance"), executor="inline")


def beside(table: Table, *names: str) -> Path:
    return Path(table.uri).joinpath("_computed", *names)


def values(table: Table) -> list[Any]:
    found: list[Any] = table.to_arrow()["c"].to_pylist()
    return found


def half_filled(table: Table) -> list[Path]:
    """Fill the column until row 9; gives the checkpoints that are there then, each of two rows."""
    table.add_columns({"c": doubling(9)})
    with pytest.raises(JobFailedError):
        table.backfill("c", **SMALL)
    found = sorted(beside(table, "checkpoints").glob("*/*.arrow"))
    assert len(found) == 4
    return found


# --- canaries


def test_metadata_and_files_of_a_table_run_nothing(table: Table, canary: Path) -> None:
    table.add_columns({"c": doubling(on_error=skip_on_error())})
    for payload in payloads(canary):
        text = payload.hex()
        keys = (
            "udf",
            "udf_backend",
            "udf_module",
            "udf_qualname",
            "udf_name",
            "udf_version",
            "computed_by",
            "platform",
        )
        said = {f"virtual_column.{key}": text if key == "udf" else payload.decode("latin-1") for key in keys}
        dataset = lance.dataset(table.uri)
        dataset.update_field_metadata({"c": said, "a": {"virtual_column.udf": text}})
        lance.dataset(table.uri).update_config({"virtual_column.udf": text})
        (Path(table.uri) / "_udfs").mkdir(exist_ok=True)
        (Path(table.uri) / "_udfs" / digest_of(payload).hex()).write_bytes(payload)
        with pytest.raises(UsageError, match="is not available"):
            table.backfill("c")
        with pytest.raises(UsageError, match="is not available"):
            Table(table.uri, udf_modules=["os", "pickle", "builtins"]).plan_backfill("c")
        table.backfill("c", udf=doubling())
        assert values(table) == [2 * a for a in range(ROWS)]
        table.alter_columns({"path": "c", "udf": doubling(on_error=skip_on_error())})
    assert not canary.exists()


def test_checkpoints_and_records_run_nothing(table: Table, canary: Path) -> None:
    first = half_filled(table)[0]
    for number, payload in enumerate(payloads(canary)):
        (first.parent / f"{number:08x}-{number:08x}-{digest_of(payload).hex()}.arrow").write_bytes(payload)
        (first.parent / f"file-{digest_of(payload).hex()}.json").write_bytes(payload)
        beside(table, "jobs", f"{number}.json").write_bytes(payload)
    for errors in beside(table, "errors").iterdir():
        errors.write_bytes(b"\n".join([*payloads(canary), errors.read_bytes()]))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        (job,) = table.jobs()
        (error,) = table.get_errors()
        table.backfill("c", udf=doubling(), **SMALL)
        assert values(table) == [2 * a for a in range(ROWS)]
    assert (job.status, error.error_message) == ("FAILED", "no 9")
    texts = [str(one.message) for one in told]
    assert sum("a job is skipped" in text for text in texts) >= len(payloads(canary))
    assert sum("the checkpoint" in text and "is damaged" in text for text in texts) >= len(payloads(canary))
    assert any("error records are damaged" in text for text in texts)
    assert not canary.exists()


@pytest.mark.parametrize("format_", ["parquet", "arrow", "lance"])
@pytest.mark.heavy
def test_sources_run_nothing(table: Table, tmp_path: Path, canary: Path, format_: str) -> None:
    for number, payload in enumerate(payloads(canary)):
        place = tmp_path / f"source{number}.{format_}"
        payload = payload if format_ != "lance" else payload.hex().encode()  # it has texts
        metadata = {b"pandas": payload, b"ARROW:schema": payload, b"virtual_column.udf": payload, b"note": payload}
        own = {b"ARROW:extension:name": b"arrow.py_extension_type", b"ARROW:extension:metadata": payload}
        schema = pa.schema([("a", pa.int64()), pa.field(f"c{number}", pa.binary(), metadata={**own, b"x": payload})])
        rows = pa.table([[1, 2], [payload, b"x"]], schema=schema)
        if format_ == "parquet":
            pq.write_table(rows.replace_schema_metadata({b"pandas": payload, b"x": payload}), place)
        elif format_ == "arrow":
            with pa.ipc.new_file(place, schema.with_metadata(metadata)) as writer:
                writer.write_table(rows.replace_schema_metadata(metadata))
        else:
            lance.write_dataset(rows, place)
        table.load_columns(str(place), "a", [f"c{number}"])
        assert table.to_arrow()[f"c{number}"].to_pylist()[:3] == [None, payload, b"x"]
    assert not canary.exists()


# --- damage


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flipped(data: bytes) -> bytes:
    return data[: len(data) // 3] + bytes([data[len(data) // 3] ^ 64]) + data[len(data) // 3 + 1 :]


def foreign(**columns: Any) -> Callable[[bytes], bytes]:
    def made(_: bytes) -> bytes:
        sink = pa.BufferOutputStream()
        metadata = {"failures": columns.pop("failures")} if "failures" in columns else None
        rows = pa.table(columns).replace_schema_metadata(metadata)
        with pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)
        return bytes(sink.getvalue().to_pybytes())

    return made


def offsets(*numbers: int) -> pa.Array:
    return pa.array(numbers, pa.uint32())


NESTED = "[" * 100_000 + "]" * 100_000
DAMAGE: dict[str, tuple[Callable[[bytes], bytes], bool]] = {
    "cut": (cut, False),
    "flipped": (flipped, False),
    "empty": (lambda _: b"", False),
    "cut, with its digest": (cut, True),
    "empty, with its digest": (lambda _: b"", True),
    "of another column": (foreign(_offset=offsets(0, 1), d=[0, 2]), True),
    "of another type": (foreign(_offset=offsets(0, 1), c=["0", "2"]), True),
    "of one column more": (foreign(_offset=offsets(0, 1), c=[0, 2], d=[0, 2]), True),
    "without offsets": (foreign(c=[0, 2]), True),
    "of other offsets": (foreign(_offset=offsets(3, 4), c=[7, 7]), True),
    "beyond the fragment": (foreign(_offset=offsets(0, 10**6), c=[7, 7]), True),
    "of offsets that are texts": (foreign(_offset=["0", "1"], c=[7, 7]), True),
    "of a row twice": (foreign(_offset=offsets(0, 0, 1), c=[7, 7, 7]), True),
    "of a failure that is none": (foreign(_offset=offsets(0, 1), c=[0, 2], failures='[{"policy": [1]}]'), True),
    "of failures that are nested": (foreign(_offset=offsets(0, 1), c=[0, 2], failures=NESTED), True),
}


@pytest.mark.parametrize("kind", list(DAMAGE))
def test_a_checkpoint_that_is_damaged_or_foreign_is_computed_again(table: Table, tmp_path: Path, kind: str) -> None:
    first, *_ = half_filled(table)
    damage, has_digest = DAMAGE[kind]
    data = damage(first.read_bytes())
    if has_digest:
        first.unlink()
        first = first.with_name(f"{first.name[:18]}{digest_of(data).hex()}.arrow")
    first.write_bytes(data)
    with pytest.warns(RuntimeWarning, match="is damaged, and its rows are computed again"):
        table.backfill("c", udf=doubling(None, tmp_path / "calls"), **SMALL)
    assert values(table) == [2 * a for a in range(ROWS)]
    assert sorted(map(int, (tmp_path / "calls").read_text().split())) == [0, 1, *range(8, ROWS)]


@pytest.mark.parametrize(
    "said",
    [
        {"name": "../../other.lance", "rows": ROWS, "computed": ROWS},
        {"name": "x.lance", "rows": ROWS, "computed": ROWS},
        {"name": f"{'a' * 24}-{'b' * 32}.lance", "rows": "14", "computed": ROWS},
        {"name": f"{'a' * 24}-{'b' * 32}.lance", "rows": ROWS, "computed": ROWS, "skipped": {"0": "many"}},
        [1],
    ],
)
def test_a_file_that_a_checkpoint_only_says_to_be_there_is_not_taken(table: Table, said: Any) -> None:
    first, *_ = half_filled(table)
    data = json.dumps(said).encode()
    (first.parent / f"file-{digest_of(data).hex()}.json").write_bytes(data)
    with pytest.warns(RuntimeWarning, match=r"file-\w+\.json is damaged"):
        table.backfill("c", udf=doubling(), **SMALL)
    assert values(table) == [2 * a for a in range(ROWS)]


def changed(name: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda record: {**record, name: value}


@pytest.mark.parametrize(
    "change",
    [
        changed("launched_at", "2020-01-01T00:00:00"),
        changed("launched_at", 5),
        changed("metrics", [{"name": "x"}]),
        changed("metrics", "x"),
        changed("errors", ["../../secret.jsonl"]),
        changed("errors", 5),
        changed("job_id", "another"),
        changed("status", {"DONE": 1}),
        changed("more", 1),
        changed("process", []),
        lambda record: [record],
        lambda _: json.loads("[" * 50 + "]" * 50),
    ],
)
def test_a_job_whose_record_is_damaged_leaves_the_others(table: Table, change: Callable[[dict[str, Any]], Any]) -> None:
    table.add_columns({"c": doubling()})
    job, other = table.backfill("c").job_id, table.backfill("c", where="1=1").job_id
    place = beside(table, "jobs", f"{job}.json")
    place.write_text(json.dumps(change(json.loads(place.read_text()))))
    with pytest.warns(RuntimeWarning, match=f"a job is skipped: .*{job}.json: the record of a job is damaged"):
        assert [one.job_id for one in table.jobs()] == [other]
    with pytest.warns(RuntimeWarning, match="a job is skipped"):
        assert table.get_errors() == []
    with pytest.raises(ReadError, match="the record of a job is damaged"):
        table.get_errors(job)
    table.backfill("c", where="1=1")


@pytest.mark.parametrize("text", ["", "{", NESTED, "\udcff"])
def test_a_job_whose_record_is_no_record_leaves_the_others(table: Table, text: str) -> None:
    table.add_columns({"c": doubling()})
    table.backfill("c")
    beside(table, "jobs", "odd.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.warns(RuntimeWarning, match="odd.json: the record of a job is damaged"):
        assert len(table.jobs()) == 1


@pytest.mark.parametrize(
    "change",
    [
        changed("row_address", "1) OR (1=1"),
        changed("row_address", True),
        changed("timestamp", "yesterday"),
        changed("input_columns", "a"),
        changed("error_message", None),
        lambda record: [record],
        lambda _: 5,
    ],
)
def test_an_error_whose_record_is_damaged_leaves_others(table: Table, change: Callable[[dict[str, Any]], Any]) -> None:
    table.add_columns({"c": doubling(9, on_error=skip_on_error())})
    job = table.backfill("c").job_id
    (place,) = beside(table, "errors").iterdir()
    line = place.read_text()
    place.write_text("\n".join([json.dumps(change(json.loads(line))), line, line[:20]]))
    with pytest.warns(RuntimeWarning, match="2 error records are damaged, and skipped"):
        assert table.get_failed_row_addresses(job, "c") == [9]


@pytest.mark.parametrize("format_", ["parquet", "arrow"])
@pytest.mark.heavy
def test_a_source_that_is_damaged_is_told_or_read(tmp_path: Path, table: Table, format_: str) -> None:
    """Some bytes mean nothing, and others a value; no damage ends the process, or comes as an error of Arrow's own."""
    place = tmp_path / f"source.{format_}"
    rows = pa.table({"a": range(50), "s": [f"x{at}" for at in range(50)], "l": [[at] * (at % 4) for at in range(50)]})
    if format_ == "parquet":
        pq.write_table(rows, place, row_group_size=20)
    else:
        with pa.ipc.new_file(place, rows.schema) as writer:
            writer.write_table(rows, max_chunksize=20)
    whole = place.read_bytes()
    told: list[BaseException | None] = []
    for at in range(7, len(whole), len(whole) // 40):
        data = whole[:at] + b"\xff\xff\xff\x7f" + whole[at + 4 :] if at % 3 else whole[:at]
        place.write_bytes(data)
        try:
            table.load_columns(str(place), "a", ["s", "l"], enable_job_tracker_saves=False)
        except ChunkmillError as error:
            told.append(error.__cause__ if isinstance(error, JobFailedError) else error)
    assert len(told) > 10 and all(isinstance(error, ChunkmillError) for error in told)
