"""Values that a backfill leaves as they are: of another function, of other inputs, of rows that were changed since."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from chunkmill.engine.errors import UsageError
from chunkmill.engine.tables import Table, udf

BLOB = {"lance-encoding:blob": "true"}


@udf(version="2")
def double(a: int) -> int:
    return a * 2


@udf(version="3")
def triple(a: int) -> int:
    return a * 3


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Table]:
    def made(*, is_stable: bool = True) -> Table:
        place = tmp_path / "t.lance"
        lance.write_dataset(pa.table({"a": range(8)}), place, max_rows_per_file=4, enable_stable_row_ids=is_stable)
        return Table(str(place), executor="inline")

    return made


def values(table: Table, column: str = "c") -> dict[int, int | None]:
    rows = table.to_arrow()
    return dict(zip(rows["a"].to_pylist(), rows[column].to_pylist(), strict=True))


def test_values_of_another_function_are_not_forgotten_beside_new_ones(make: Callable[..., Table]) -> None:
    table = make()
    table.add_columns({"c": double})
    table.backfill("c")
    table.alter_columns({"path": "c", "udf": triple})
    with pytest.warns(UserWarning, match="values computed by another function"):
        table.backfill("c", where="a < 2")
    assert values(table) == {a: a * (3 if a < 2 else 2) for a in range(8)}
    plan = table.plan_backfill("c")
    assert (plan.udf_mismatch, plan.total_rows_pending) == (True, 8)
    table.backfill("c")
    assert values(table) == {a: a * 3 for a in range(8)}
    assert not table.plan_backfill("c").has_work


def test_a_condition_that_asks_for_all_leaves_nothing_of_another_function(make: Callable[..., Table]) -> None:
    table = make()
    table.add_columns({"c": double})
    table.backfill("c")
    table.alter_columns({"path": "c", "udf": triple})
    with pytest.warns(UserWarning, match="values computed by another function"):
        table.backfill("c", where="1=1")
    assert not table.plan_backfill("c").has_work


def test_values_of_other_inputs_are_not_forgotten_either(make: Callable[..., Table]) -> None:
    table = make()
    table.add_columns({"b": double})
    table.add_columns({"c": (udf(version="1")(_plus), ["a", "b"])})
    table.backfill("b")
    table.backfill("c")
    table.alter_columns({"path": "b", "udf": triple})
    table.backfill("b")
    table.backfill("c", where="a IN (1, 5)")
    assert values(table) == {a: a * (4 if a in (1, 5) else 3) for a in range(8)}
    assert table.plan_backfill("c").srcfiles_mismatch
    table.backfill("c")
    assert values(table) == {a: a * 4 for a in range(8)}


def _plus(a: int, b: int) -> int:
    return a + b


def test_rows_out_of_date_are_told_also_when_others_beside_them_were_computed(make: Callable[..., Table]) -> None:
    table = make()
    table.add_columns({"c": double})
    table.backfill("c", where="a != 6")
    lance.dataset(table.uri).update({"a": "a + 100"}, where="a IN (1, 3, 6)")
    assert table.plan_backfill("c").stale_rows == 2
    table.backfill("c")
    assert values(table)[106] == 212 and values(table)[101] == 2
    assert table.plan_backfill("c").stale_rows >= 2
    table.backfill("c", where="a > 100")
    assert values(table) == {a: a * 2 for a in values(table)}
    assert table.plan_backfill("c").stale_rows == 0


def test_a_table_without_stable_row_ids_tells_of_rows_that_may_be_out_of_date(make: Callable[..., Table]) -> None:
    table = make(is_stable=False)
    table.add_columns({"c": double})
    table.backfill("c")
    assert table.plan_backfill("c").stale_rows == 0
    lance.dataset(table.uri).update({"a": "a + 100"}, where="a IN (1, 3)")
    assert table.plan_backfill("c").stale_rows == 2
    table.backfill("c", where="a > 100")
    assert values(table) == {a: a * 2 for a in values(table)}
    assert table.plan_backfill("c").stale_rows == 0


@pytest.mark.parametrize("name", ["null", "true", "interval", "not", "select", "it's /a:b"])
def test_a_column_may_be_called_as_a_word_of_sql(make: Callable[..., Table], name: str) -> None:
    table = make()
    table.add_columns({name: double})
    assert table.backfill(name, where="a < 3").columns[name].rows_processed == 3
    assert table.backfill(name).columns[name].rows_processed == 5
    assert not table.plan_backfill(name).has_work
    assert values(table, name) == {a: a * 2 for a in range(8)}


# --- blobs


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_functions_get_blobs_as_bytes(tmp_path: Path, version: str) -> None:
    @udf
    def length(blob: bytes | None) -> int | None:
        return None if blob is None else len(blob)

    given = [b"x" * 10, None, b"", b"y" * 100_000]
    field = pa.field("blob", pa.large_binary(), metadata=BLOB)
    rows = pa.table([pa.array(given, field.type)], schema=pa.schema([field]))
    lance.write_dataset(rows, tmp_path / "b.lance", data_storage_version=version)
    table = Table(str(tmp_path / "b.lance"), executor="inline")
    table.add_columns({"length": length})
    table.backfill("length")
    assert table.to_arrow().to_pydict() == {"blob": given, "length": [10, None, 0, 100_000]}
    assert table.schema.field("blob").type == pa.large_binary()
    lance.write_dataset(pa.table({"length": [10], "blob": [b"z"]}), tmp_path / "more.lance")
    with pytest.raises(UsageError, match="'blob' is a blob column, which cannot be loaded"):
        table.load_columns(str(tmp_path / "more.lance"), "length", ["blob"])


def test_a_function_gives_no_blobs(make: Callable[..., Table]) -> None:
    @udf(data_type=pa.large_binary(), field_metadata=BLOB)
    def made(a: int) -> bytes:
        return b"x" * a

    table = make()
    with pytest.raises(UsageError, match="'c' would be a blob column, which functions cannot fill"):
        table.add_columns({"c": made})
    assert table.schema.names == ["a"]
