"""Damaged and hostile files: refused with path, byte and hint, before memory is taken."""

from __future__ import annotations

import io
import resource
import time
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill.engine.errors import ReadError
from chunkmill.readers.parquet import file as pages
from chunkmill.readers.parquet.file import ParquetFile
from chunkmill.readers.parquet.footer import CutThriftError, ThriftCursor, ThriftError, parse_footer
from parquet_making import chunks


def refused(path: Path, match: str) -> ReadError:
    with pytest.raises(ReadError, match=match) as caught:
        chunks(path)
    assert caught.value.path == str(path) and caught.value.hint
    return caught.value


def written(path: Path, table: pa.Table, **options) -> Path:
    pq.write_table(table, path, **options)
    return path


TABLE = pa.table({"a": np.random.default_rng(2).random(3000), "b": [f"row {i}" for i in range(3000)]})


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_a_flipped_bit_is_noticed_with_its_page(tmp_path: Path, compression: str) -> None:
    path = written(
        tmp_path / "x.parquet", TABLE, compression=compression, write_page_checksum=True, row_group_size=1000
    )
    with ParquetFile(str(path)) as file:
        place = file.footer.row_groups[1].columns[0]
    data = bytearray(path.read_bytes())
    data[place.start + place.compressed - 20] ^= 16
    path.write_bytes(bytes(data))
    error = refused(path, "checksum of a page of column 'a' of row group 1 does not match")
    assert error.offset is not None and place.start <= error.offset < place.start + place.compressed


def test_damage_without_a_checksum_names_the_column(tmp_path: Path) -> None:
    path = written(tmp_path / "x.parquet", TABLE, compression="snappy")
    with ParquetFile(str(path)) as file:
        place = file.footer.row_groups[0].columns[1]
    data = bytearray(path.read_bytes())
    for i in range(place.start + place.compressed - 200, place.start + place.compressed - 20):
        data[i] = 0xFF
    path.write_bytes(bytes(data))
    error = refused(path, "Parquet error")
    assert error.offset is not None and place.start <= error.offset < place.start + place.compressed


TWICE = pa.table(
    {
        "speed": pa.array([1, 2], pa.uint16()),
        "price": pa.array([Decimal(1), Decimal(2)], pa.decimal128(9, 2)),
        "stamp": pa.array([1, 2], pa.timestamp("us", "UTC")),
        "pose": [{"x": 1.0}, {"x": 2.0}],
    }
)


@pytest.mark.parametrize(
    ("before", "after", "match"),
    [
        (b"price", b"prize", "has a column 'price' of the physical type 7, but the schema has 'prize' of 7"),
        (b"pose", b"post", "has a column 'pose.x' of the physical type 5, but the schema has 'post.x' of 5"),
        (b"\x2c\x5c\x15\x04\x15\x12", b"\x2c\x5c\x15\x06\x15\x12", "'price' is a decimal with two different scales"),
        (
            b"\x2c\x5c\x15\x04\x15\x12",
            b"\x2c\x5c\x15\x04\x15\x10",
            "'price' is a decimal with two different precisions",
        ),
        (b"\x8c\x11\x1c\x2c", b"\x8c\x11\x1c\x3c", "'stamp' has the logical type 8 and the converted type 10"),
        (b"\xac\x13\x10\x12", b"\xac\x13\x10\x11", "'speed' has the logical type 10 and the converted type 12"),
    ],
)
def test_what_a_footer_says_twice_is_compared(tmp_path: Path, before: bytes, after: bytes, match: str) -> None:
    path = written(tmp_path / "x.parquet", TWICE, store_schema=False, write_statistics=False)
    data = path.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    assert chunks(path) and before in data[footer:], data[footer:].hex(" ")
    path.write_bytes(data[:footer] + data[footer:].replace(before, after, 1))
    assert refused(path, match).offset is not None


def test_rows_are_counted_twice(tmp_path: Path) -> None:
    path = written(tmp_path / "x.parquet", TWICE, store_schema=False)
    data = path.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    rows = data.index(b"\x16\x04\x19", footer)  # an integer of 64 bits, 2, and a list after it
    path.write_bytes(data[: rows + 1] + b"\x06" + data[rows + 2 :])
    refused(path, "it counts 3 rows, but its row groups have 2")


@pytest.mark.parametrize("left", [1, 4, 7, 8, 9, 100, 1000])
def test_a_cut_file_is_refused(tmp_path: Path, left: int) -> None:
    path = written(tmp_path / "x.parquet", TABLE)
    path.write_bytes(path.read_bytes()[:-left])
    assert refused(path, "Parquet error|footer").offset is not None


def test_a_bomb_is_refused_in_no_time(tmp_path: Path) -> None:
    zeros = pa.array([bytes(72 * 1024 * 1024)], pa.binary())
    path = written(
        tmp_path / "x.parquet", pa.table({"b": zeros}), compression="zstd", use_dictionary=False, write_statistics=False
    )
    del zeros
    assert path.stat().st_size < 100_000
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    error = refused(path, "the uncompressed size of a page is")
    assert error.offset == 4
    assert time.process_time() - begin < 1.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


def test_columns_of_one_value_are_no_bomb(tmp_path: Path) -> None:
    path = written(tmp_path / "x.parquet", pa.table({"v": np.zeros(2_000_000)}))
    assert sum(c.num_rows for c in chunks(path) if not c.is_static) == 2_000_000


def test_more_rows_than_bytes_can_hold_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "x.parquet", pa.table({"v": np.zeros(2_000_000)}))
    monkeypatch.setattr(pages, "FREE_CELLS", 1000)
    monkeypatch.setattr(pages, "MAX_VALUES_PER_BYTE", 10)
    refused(path, "the number of values")


def test_a_schema_nested_too_deep_is_refused(tmp_path: Path) -> None:
    kind = pa.int32()
    for _ in range(300):
        kind = pa.struct([("x", kind)])
    path = written(tmp_path / "x.parquet", pa.table({"v": pa.nulls(1, kind)}), store_schema=False)
    refused(path, "nested too deeply")


def test_a_footer_longer_than_the_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(b"PAR1" + bytes(8) + (2**31).to_bytes(4, "little") + b"PAR1")
    assert refused(path, "the length of the footer").offset == 12


def test_the_footer_is_that_which_the_library_reads() -> None:
    file = io.BytesIO()
    pq.write_table(TABLE.replace_schema_metadata({"k": "v"}), file, row_group_size=700, compression="gzip")
    data = file.getvalue()
    size = int.from_bytes(data[-8:-4], "little")
    footer = parse_footer(data[-8 - size : -8], path="memory", offset=len(data) - 8 - size)
    metadata = pq.read_metadata(io.BytesIO(data))
    assert (footer.rows, len(footer.row_groups)) == (metadata.num_rows, metadata.num_row_groups)
    assert footer.created_by == metadata.created_by
    assert dict(footer.key_values) == {k.decode(): v.decode() for k, v in metadata.metadata.items()}
    for i, group in enumerate(footer.row_groups):
        for j, column in enumerate(group.columns):
            theirs = metadata.row_group(i).column(j)
            assert column.path == theirs.path_in_schema
            assert (column.values, column.compressed) == (theirs.num_values, theirs.total_compressed_size)
            assert (column.uncompressed, column.data_offset) == (
                theirs.total_uncompressed_size,
                theirs.data_page_offset,
            )
            assert column.dictionary_offset == theirs.dictionary_page_offset


class TestThrift:
    """Bytes that are no Thrift."""

    def test_ends_are_noticed(self) -> None:
        for data in (b"", b"\x15", b"\x18\x05abc", b"\x19\xf5\xff\x7f", b"\x1b\x7f\x55"):
            with pytest.raises(CutThriftError):
                ThriftCursor(data).skip(12)

    def test_numbers_and_depth_are_bounded(self) -> None:
        with pytest.raises(ThriftError, match="more than 64 bits"):
            ThriftCursor(b"\x15" + b"\xff" * 12).skip(12)
        with pytest.raises(ThriftError, match="nested too deeply"):
            ThriftCursor(b"\x1c" * 5000).skip(12)
        with pytest.raises(ThriftError, match="no type 14"):
            ThriftCursor(b"\x1e").skip(12)


def test_long_texts_in_a_dictionary_make_small_batches(tmp_path: Path) -> None:
    from chunkmill.readers.parquet.file import BATCH_BYTES, read_columns

    texts = pa.array([str(i) * 20_000 for i in range(10)]).dictionary_encode()
    rows = pa.DictionaryArray.from_arrays(pa.array(np.arange(20_000) % 10, pa.int32()), texts.dictionary)
    path = written(tmp_path / "x.parquet", pa.table({"t": rows}), store_schema=False)
    assert path.stat().st_size < 100_000  # and 400 MB of text
    with ParquetFile(str(path)) as file:
        batches = read_columns(file, [0], [0])
        length, batch = next(batches)
        assert batch[0].nbytes <= 1.5 * BATCH_BYTES
        assert length + sum(n for n, _ in batches) == 20_000


@pytest.mark.parametrize(
    ("values", "datatype"),
    [
        (["hello", "world"], pa.string()),
        (["hello", "world"], pa.large_string()),
        ([["hello"], []], pa.list_(pa.string())),
        ([{"a": "hello"}, None], pa.struct([("a", pa.string())])),
    ],
    ids=str,
)
@pytest.mark.parametrize("dictionary", [True, False])
def test_text_that_is_not_utf8(values: list[object], datatype: pa.DataType, dictionary: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"s": pa.array(values, datatype), "x": [1.0, 2.0]})
    pq.write_table(table, path, compression="none", use_dictionary=dictionary, write_statistics=False)
    data = path.read_bytes()
    assert data.count(b"hello") == 1
    path.write_bytes(data.replace(b"hello", b"he\xfflo"))
    refused(path, "a text of column 's' is damaged: .*Invalid UTF8.*copy it again")
