"""Chunks as tables, byte for byte: the examples of the format, its rules one by one, and Rerun's own output."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ChunkData, Component, ComponentColumn, ComponentDescriptor, TimeColumn
from chunkmill.engine.chunk.data import Timeline, TimelineKind
from chunkmill.engine.chunk.text import cell_writer, clusters, type_text, width_of, wrap
from chunkmill.engine.chunk.tuid import following
from hypothesis import given, settings
from hypothesis import strategies as st

TEXT = ComponentDescriptor("TextDocument:text", "rerun.archetypes.TextDocument", "rerun.components.Text")

STATIC_EXAMPLE = """\
┌──────────────────────────────────────────────────────────────────────────────────┐
│ METADATA:                                                                        │
│ * entity_path: /st                                                               │
│ * id: [**REDACTED**]                                                             │
│ * version: [**REDACTED**]                                                        │
├╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌┤
│ ┌───────────────────────────────────────────────┬──────────────────────────────┐ │
│ │ RowId                                         ┆ TextDocument:text            │ │
│ │ ---                                           ┆ ---                          │ │
│ │ type: non-null FixedSizeBinary(16)            ┆ type: List(Utf8)             │ │
│ │ ARROW:extension:metadata: {"namespace":"row"} ┆ archetype: TextDocument      │ │
│ │ ARROW:extension:name: TUID                    ┆ component: TextDocument:text │ │
│ │ is_sorted: true                               ┆ component_type: Text         │ │
│ │ kind: control                                 ┆ kind: data                   │ │
│ ╞═══════════════════════════════════════════════╪══════════════════════════════╡ │
│ │ row_[**REDACTED**]                            ┆ [hello]                      │ │
│ └───────────────────────────────────────────────┴──────────────────────────────┘ │
└──────────────────────────────────────────────────────────────────────────────────┘"""

TEMPORAL_EXAMPLE = """\
│ ┌────────────────────────────────┬───────────────────┬──────────────────────┬──
│ │ RowId                          ┆ frame             ┆ log_time             ┆
│ │ ---                            ┆ ---               ┆ ---                  ┆
│ │ type: non-null                 ┆ type: Int64       ┆ type: Timestamp(ns)  ┆
│ │ FixedSizeBinary(16)            ┆ index_name: frame ┆ index_name: log_time ┆
│ │ ARROW:extension:metadata:      ┆ is_sorted: true   ┆ kind: index          ┆
│ │ {"namespace":"row"}            ┆ kind: index       ┆                      ┆
│ │ ARROW:extension:name: TUID     ┆                   ┆                      ┆
│ │ is_sorted: true                ┆                   ┆                      ┆
│ │ kind: control                  ┆                   ┆                      ┆
│ ╞════════════════════════════════╪═══════════════════╪══════════════════════╪══
│ │ row_18E9F1A70ECD262F28f31aa2de ┆ 0                 ┆ 2023-11-14T22:13:21  ┆
│ │ cc8cf7                         ┆                   ┆                      ┆
│ ├╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌┼╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌┼╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌┼╌╌"""


def test_a_static_chunk_is_printed_as_in_the_specification() -> None:
    chunk = Chunk.from_columns("/st", [], [ComponentColumn(TEXT, ["hello"])])
    assert chunk.format(redact=True) == STATIC_EXAMPLE


def test_a_temporal_chunk_is_printed_as_in_the_specification() -> None:
    chunk_id = bytes.fromhex("18E9F1A70ECD262F28f31aa2decc8cf6")
    times = pa.array([1_700_000_001_000_000_000, 1_700_000_000_000_000_000]).view(pa.timestamp("ns"))
    data = ChunkData(
        chunk_id,
        "/a/b",
        following(chunk_id, 2),
        (
            Timeline("frame", TimelineKind.SEQUENCE, pa.array([0, 1])),
            Timeline("log_time", TimelineKind.TIMESTAMP, times),
        ),
        tuple(Component(ComponentDescriptor(n), pa.array([[1.0], None])) for n in "abcd"),
    )
    lines = Chunk.from_data(data).format().split("\n")
    start = next(i for i, line in enumerate(lines) if line.startswith("│ ┌"))
    for expected, line in zip(TEMPORAL_EXAMPLE.split("\n"), lines[start:], strict=False):
        assert line.startswith(expected)


def test_str_is_the_format_with_defaults() -> None:
    chunk = Chunk.from_columns("/st", [], [ComponentColumn(TEXT, ["hello"])])
    assert str(chunk) == chunk.format() == chunk.format(width=240, redact=False, trim_metadata_keys=True)
    assert f"* id: {chunk.id}" in str(chunk)


def test_keys_keep_their_prefixes_on_demand() -> None:
    text = Chunk.from_columns("/st", [], [ComponentColumn(TEXT, ["x"])]).format(trim_metadata_keys=False, redact=True)
    for line in ("* rerun:entity_path: /st", "* rerun:id: [**REDACTED**]", "* sorbet:version: [**REDACTED**]"):
        assert f"│ {line}" in text
    assert "rerun:archetype: TextDocument" in text


def test_a_chunk_without_rows_has_its_header_rule() -> None:
    lines = Chunk.from_columns("/a", [], []).format().split("\n")
    assert lines[-3].startswith("│ ╞═") and lines[-2].startswith("│ └─")


def test_width_must_be_a_number_and_not_negative() -> None:
    chunk = Chunk.from_columns("/a", [], [])
    with pytest.raises(OverflowError):
        chunk.format(width=-1)
    with pytest.raises(TypeError):
        chunk.format(width="x")  # type: ignore[arg-type]
    assert chunk.format(width=10**9) == chunk.format(width=500)


def test_an_unsorted_timeline_is_not_called_sorted() -> None:
    columns = [TimeColumn("a", sequence=[1, 2]), TimeColumn("b", sequence=[2, 1])]
    text = Chunk.from_columns("/a", columns, [ComponentColumn("x", [1, 2])]).format()
    header = text[: text.index("╞")]
    assert header.count("is_sorted: true") == 2  # the row ids and ``a``


VALUES: list[tuple[pa.DataType, Any, str]] = [
    (pa.float64(), 4.0, "4.0"),
    (pa.float64(), 1e-5, "0.00001"),
    (pa.float64(), 9.9e-6, "9.9e-6"),
    (pa.float64(), 1e15, "1000000000000000.0"),
    (pa.float64(), 1.5e16, "1.5e16"),
    (pa.float64(), -0.0, "-0.0"),
    (pa.float64(), float("nan"), "NaN"),
    (pa.float64(), float("-inf"), "-inf"),
    (pa.float64(), 5e-324, "5e-324"),
    (pa.float32(), 0.1, "0.1"),
    (pa.float32(), 1e-6, "0.000001"),
    (pa.float32(), 9.9e-7, "9.9e-7"),
    (pa.float32(), 1e13, "1e13"),
    (pa.float32(), 1e12, "1000000000000.0"),
    (pa.float16(), np.float16(0.1), "0.099975586"),
    (pa.float16(), np.float16(2.0), "2"),
    (pa.float16(), np.float16(-7.62890625), "-7.6289063"),
    (pa.uint64(), 2**64 - 1, "18446744073709551615"),
    (pa.bool_(), True, "true"),
    (pa.string(), "a\nb", "a\nb"),
    (pa.binary(), b"\x00\xff", "00ff"),
    (pa.binary(3), b"abc", "616263"),
    (pa.timestamp("ns"), 1_700_000_000_500_000_000, "2023-11-14T22:13:20.500"),
    (pa.timestamp("us"), -1, "1969-12-31T23:59:59.999999"),
    (pa.timestamp("ns"), 1, "1970-01-01T00:00:00.000000001"),
    (pa.timestamp("ms"), 253_402_300_800_000, "+10000-01-01T00:00:00"),
    (pa.timestamp("ms"), -62_167_219_200_001, "-0001-12-31T23:59:59.999"),
    (pa.timestamp("ns", "UTC"), 0, "1970-01-01T00:00:00Z"),
    (pa.timestamp("ns", "+01:30"), 0, "1970-01-01T01:30:00+01:30"),
    (pa.timestamp("ns", "Europe/Berlin"), 0, "1970-01-01T01:00:00+01:00"),
    (pa.timestamp("s"), 2**60, "ERROR: Cast error: Failed to convert 1152921504606846976 to datetime for Timestamp(s)"),
    (pa.duration("ns"), 1_500_000_000, "PT1.5S"),
    (pa.duration("ms"), -500, "-PT0.5S"),
    (pa.duration("s"), 86_400, "PT86400S"),
    (pa.duration("ns"), 0, "P0D"),
    (pa.duration("s"), 2**62, "<invalid>"),
    (pa.date32(), -719_529, "-0001-12-31"),
    (pa.date32(), 2**31 - 1, "ERROR: Cast error: Failed to convert 2147483647 to temporal for Date32"),
    (pa.date64(), 86_400_000, "1970-01-02T00:00:00"),
    (pa.time32("s"), 3661, "01:01:01"),
    (pa.time64("ns"), 3_661_000_000_001, "01:01:01.000000001"),
    (pa.time32("s"), 86_400, "ERROR: Cast error: Failed to convert 86400 to temporal for Time32(s)"),
    (pa.decimal128(10, 3), Decimal("-1.5"), "-1.500"),
    (pa.decimal128(5, -2), Decimal("12300"), "12300"),
    (pa.month_day_nano_interval(), (14, 0, -3_600_000_000_001), "14 mons -1 hours -0.000000001 secs"),
    (pa.list_(pa.list_(pa.int8())), [[1], None, []], "[[1], null, []]"),
    (pa.list_(pa.int8(), 2), [1, None], "[1, null]"),
    (pa.struct([("x", pa.float64()), ("y", pa.string())]), {"x": 1.0, "y": "q"}, "{x: 1.0, y: q}"),
    (pa.map_(pa.string(), pa.int32()), [("a", 1), ("b", None)], "{a: 1, b: null}"),
    (pa.dictionary(pa.int8(), pa.string()), "a", "a"),
    (
        pa.timestamp("ns", "nowhere"),
        0,
        'Failed to format array: Parser error: Invalid timezone "nowhere": failed to parse timezone',
    ),
]


@pytest.mark.parametrize(("datatype", "value", "text"), VALUES, ids=lambda v: str(v)[:40])
def test_values(datatype: pa.DataType, value: Any, text: str) -> None:
    array = _array(datatype, value)
    assert cell_writer(datatype)(array[0]) == text
    if not text.startswith("Failed"):
        assert cell_writer(datatype)(pa.nulls(1, datatype)[0]) == "null"


def _array(datatype: pa.DataType, value: Any) -> pa.Array:
    """One value; times from the number that is stored."""
    if pa.types.is_temporal(datatype) and isinstance(value, int):
        stored = pa.int32() if datatype.bit_width == 32 else pa.int64()
        return pa.array([value], stored).view(datatype)
    if pa.types.is_dictionary(datatype):
        return pa.array([value], datatype.value_type).dictionary_encode().cast(datatype)
    return pa.array([value], datatype)


def test_unions_name_their_member() -> None:
    members = [pa.array([1, None]), pa.array(["b"])]
    union = pa.UnionArray.from_dense(
        pa.array([5, 7, 5], pa.int8()), pa.array([0, 0, 1], pa.int32()), members, ["i", "s"], [5, 7]
    )
    assert [cell_writer(union.type)(v) for v in union] == ["{i=1}", "{s=b}", "{i=null}"]
    assert type_text(union.type) == 'Union(Dense, 5: ("i": Int64), 7: ("s": Utf8))'


@pytest.mark.parametrize(
    ("datatype", "text"),
    [
        (pa.list_(pa.field("item", pa.float32(), nullable=False), 3), "FixedSizeList(3 x non-null Float32)"),
        (pa.large_list(pa.field("e", pa.int8())), "LargeList(Int8, field: 'e')"),
        (pa.struct([("x", pa.float64()), ("y", pa.string())]), 'Struct("x": Float64, "y": Utf8)'),
        (
            pa.struct([pa.field("a", pa.int8(), False, {"b": "1"})]),
            'Struct("a": non-null Int8, metadata: {"b": "1"})',
        ),
        (
            pa.map_(pa.string(), pa.int32()),
            'Map("entries": non-null Struct("key": non-null Utf8, "value": Int32), unsorted)',
        ),
        (pa.timestamp("us", "UTC"), 'Timestamp(µs, "UTC")'),
        (pa.dictionary(pa.int32(), pa.string()), "Dictionary(Int32, Utf8)"),
        (pa.decimal128(10, 2), "Decimal128(10, 2)"),
    ],
)
def test_types(datatype: pa.DataType, text: str) -> None:
    assert type_text(datatype) == text


def test_a_cell_has_100_characters_at_most() -> None:
    write = cell_writer(pa.string())
    assert write(pa.scalar("x" * 100)) == "x" * 100
    assert write(pa.scalar("x" * 101)) == "x" * 99 + "…"
    assert write(pa.scalar("日" * 150)) == "日" * 99 + "…"
    assert cell_writer(pa.list_(pa.int64()))(pa.scalar(list(range(1000)))).endswith("…")


def test_a_long_value_is_not_rendered_whole() -> None:
    size = 4_000_000
    blob = pa.ListArray.from_arrays([0, size], pa.array(np.zeros(size, np.uint8)))
    columns = [
        ComponentColumn("a", blob),
        ComponentColumn("b", pa.array([[bytes(size)]])),
        ComponentColumn("c", pa.array([["é" * size]])),
    ]
    chunk = Chunk.from_columns("/big", [], columns)
    chunk.format()
    started = time.process_time()
    chunk.format()
    assert time.process_time() - started < 0.25


def test_a_word_is_not_begun_in_the_last_two_columns() -> None:
    assert wrap("abcdefg hijklmnopqrs", 9) == ["abcdefg", "hijklmnop", "qrs"]
    assert wrap("ab  cd", 4) == ["ab ", "cd"]
    assert wrap("", 3) == []


def test_widths() -> None:
    assert [width_of(t) for t in ("", "a\tb", "é", "e\u0301", "ﾊﾞ", "한국", "👍🏽", "❤️", "🇩🇪", "لا")] == [
        0, 3, 1, 1, 1, 4, 2, 2, 2, 1,
    ]  # fmt: skip
    assert list(clusters("e\u0301x❤️")) == ["e\u0301", "x", "❤️"]


# --- beside the real thing


class _Column:
    """A component column as Rerun's own API takes it."""

    def __init__(self, descriptor: Any, values: pa.Array) -> None:
        self.component_descriptor = lambda: descriptor
        self.as_arrow_array = lambda: values


WORDS = ["", "a", "hello world", "日本語 テキスト", "a\nb c", "👍", "a  b", "e\u0301" * 4, "❤️ y", "\n", '"q"']


def _word(r: random.Random) -> str:
    long = " ".join("w" * r.randint(1, 40) for _ in range(9))
    return r.choice([*WORDS, "x" * r.randint(1, 150), long])


def _number(r: random.Random) -> float:
    return r.choice([0.0, -0.0, float("nan"), float("inf"), r.random(), r.uniform(-1, 1) * 10.0 ** r.randint(-12, 20)])


LEAVES: list[tuple[pa.DataType, Callable[[random.Random], Any]]] = [
    (pa.int8(), lambda r: r.randint(-128, 127)),
    (pa.uint64(), lambda r: r.randint(0, 2**64 - 1)),
    (pa.float32(), lambda r: float(np.float32(_number(r)))),
    (pa.float64(), _number),
    (pa.bool_(), lambda r: r.random() < 0.5),
    (pa.string(), _word),
    (pa.large_string(), _word),
    (pa.binary(), lambda r: r.randbytes(r.choice([0, 1, 60]))),
    (pa.binary(3), lambda r: r.randbytes(3)),
    (pa.timestamp("ns"), lambda r: r.randint(-(2**62), 2**62)),
    (pa.timestamp("ms", "UTC"), lambda r: r.randint(0, 2**41)),
    (pa.duration("us"), lambda r: r.randint(-(10**9), 10**15)),
    (pa.date32(), lambda r: r.randint(-(10**6), 4 * 10**6)),
    (pa.null(), lambda r: None),
]


def _type(r: random.Random, depth: int = 0) -> tuple[pa.DataType, Callable[[random.Random], Any]]:
    if depth > 2 or r.random() < 0.6:
        return r.choice(LEAVES)
    inner, make = _type(r, depth + 1)
    if r.random() < 0.5:
        return pa.list_(inner), lambda r: [make(r) for _ in range(r.choice([0, 1, 3, 40]))]
    if r.random() < 0.3:
        return pa.list_(inner, 2), lambda r: [make(r), make(r)]
    return pa.struct([("x", inner), ("日 y", pa.int8())]), lambda r: {"x": make(r), "日 y": None}


def _component(r: random.Random, rows: int) -> pa.Array:
    datatype, make = _type(r)
    values = [None if r.random() < 0.1 else [make(r) for _ in range(r.choice([0, 1, 2, 5]))] for _ in range(rows)]
    return pa.array(values, pa.list_(datatype))


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1))
def test_rerun_prints_the_same(seed: int) -> None:
    rr = pytest.importorskip("rerun")
    theirs = pytest.importorskip("rerun.chunk").Chunk
    r = random.Random(seed)
    rows = r.choice([0, 1, 2, 4])
    indexes = [
        rr.TimeColumn("frame", sequence=[r.randint(0, 99) for _ in range(rows)]),
        rr.TimeColumn("log time", timestamp=[r.uniform(-1e9, 2e9) for _ in range(rows)]),
        rr.TimeColumn("日", duration=[r.uniform(-1e4, 1e4) for _ in range(rows)]),
    ]
    columns = [
        _Column(
            rr.ComponentDescriptor(
                r.choice(["Points3D:positions", "x y", "rerun.components.Y", "n\nl"]) + str(i),
                archetype=r.choice([None, "rerun.archetypes.Points3D", "my.A"]),
                component_type=r.choice([None, "rerun.components.Q"]),
            ),
            _component(r, rows),
        )
        for i in range(r.choice([1, 2, 4, 25]))
    ]
    real = theirs.from_columns("/a/日 本", indexes[: r.randint(0, 3)], columns)
    ours = Chunk.from_record_batch(real.to_record_batch())
    for width in (240, r.randint(0, 400)):
        options: dict[str, Any] = {
            "width": width,
            "redact": r.random() < 0.3,
            "trim_metadata_keys": r.random() < 0.7,
        }
        assert ours.format(**options) == real.format(**options).replace("version: 0.1.4", "version: 0.1.3")
