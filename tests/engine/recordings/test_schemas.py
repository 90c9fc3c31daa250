"""Schemas of layers: files by content, and the union of many, whatever the order they come in."""

from __future__ import annotations

import random
from itertools import permutations
from pathlib import Path

import pyarrow as pa
import pytest
from chunkmill.engine.chunk import ComponentColumnDescriptor, IndexColumnDescriptor, Schema, TimelineKind
from chunkmill.engine.errors import ReadError, SchemaConflictError
from chunkmill.engine.execution import LocalFolder
from chunkmill.engine.recordings import RecordingsFolder, SchemaFiles, join_schemas, join_types

BASES = [
    *(pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.binary()),
    *(pa.timestamp("ns"), pa.duration("ns"), pa.binary(4), pa.null(), pa.dictionary(pa.int8(), pa.string())),
    *(pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.int16()), pa.large_list(pa.int8())),
    pa.sparse_union([pa.field("a", pa.int8()), pa.field("b", pa.string())]),
    pa.sparse_union([pa.field("a", pa.int8()), pa.field("b", pa.binary())]),
]


def field(random: random.Random, name: str, datatype: pa.DataType, known: bool | None = None) -> pa.Field:
    nullable = random.random() < 0.7 if known is None else known
    return pa.field(name, datatype, nullable or pa.types.is_null(datatype))


def made_type(random: random.Random, depth: int = 3) -> pa.DataType:
    kind = random.random()
    if depth == 0 or kind < 0.3:
        return random.choice(BASES)
    if kind < 0.7:
        names = random.sample("abcd", random.randint(0, 4))
        return pa.struct([field(random, n, made_type(random, depth - 1)) for n in names])
    item = field(random, "item", made_type(random, depth - 1))
    return pa.list_(item) if kind < 0.9 else pa.list_(item, random.choice([2, 3]))


def changed(random: random.Random, datatype: pa.DataType) -> pa.DataType:
    """The type, other in a place or two."""
    if random.random() < 0.15:
        return random.choice(BASES)
    if pa.types.is_struct(datatype):
        fields = [field(random, f.name, changed(random, f.type), f.nullable) for f in datatype if random.random() < 0.8]
        random.shuffle(fields)
        return pa.struct(fields)
    if pa.types.is_list(datatype):
        return pa.list_(field(random, "item", changed(random, datatype.value_type)))
    return datatype


def fits(one: pa.DataType, other: pa.DataType) -> bool:
    """The table of what goes together, said by itself."""
    if pa.types.is_null(one) or pa.types.is_null(other):
        return True
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        names = {f.name for f in one} & {f.name for f in other}
        return all(fits(one.field(n).type, other.field(n).type) for n in names)
    if pa.types.is_list(one) and pa.types.is_list(other):
        return fits(one.value_type, other.value_type)
    return bool(one.equals(other))


def joined(*types: pa.DataType) -> pa.DataType | None:
    found = types[0]
    try:
        for other in types[1:]:
            found = join_types(found, other, "column")
    except SchemaConflictError:
        return None
    return found


class TestTypes:
    @pytest.mark.parametrize("seed", range(10))
    def test_pairs_and_triples(self, seed: int) -> None:
        """Whether they go together, and that order and grouping make no difference: 50 pairs and triples each."""
        made = random.Random(seed)
        together = 0
        for at in range(50):
            one = made_type(made)
            other, third = changed(made, one), changed(made, one)
            union = joined(one, other)
            assert (union is not None) == fits(one, other), f"seed {seed}: {one} and {other}"
            assert union == joined(other, one)
            assert joined(one, one) == one
            if union is not None:
                together += 1
                assert joined(union, one) == union == joined(union, other)
            orders = permutations((one, other, third)) if at < 10 else [(one, other, third), (third, one, other)]
            assert len({str(joined(*some)) for some in orders}) == 1, f"seed {seed}"
            right = joined(other, third)
            assert joined(one, other, third) == (None if right is None else joined(one, right))
        assert 5 < together < 50

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (pa.int64(), pa.float64()),
            (pa.list_(pa.int8()), pa.list_(pa.int8(), 3)),
            (pa.list_(pa.int8(), 2), pa.list_(pa.int8(), 3)),
            (pa.list_(pa.field("item", pa.int8(), False), 2), pa.list_(pa.int8(), 2)),
            (pa.dictionary(pa.int32(), pa.string()), pa.string()),
            (BASES[13], BASES[14]),
            (BASES[-2], BASES[-1]),
            (pa.list_(pa.int8()), pa.large_list(pa.int8())),
            (pa.struct([("a", pa.int8())]), pa.struct([("a", pa.int16()), ("b", pa.int8())])),
        ],
    )
    def test_what_does_not_go_together(self, one: pa.DataType, other: pa.DataType) -> None:
        assert joined(one, other) is None is joined(other, one)

    def test_a_struct_has_the_fields_of_both_which_may_be_missing(self) -> None:
        one = pa.struct([pa.field("y", pa.int8(), False), pa.field("x", pa.int8(), False)])
        other = pa.struct([pa.field("x", pa.int8(), False), pa.field("z", pa.null())])
        assert join_types(one, other, "c") == pa.struct(
            [pa.field("x", pa.int8(), False), pa.field("y", pa.int8()), pa.field("z", pa.null())]
        )

    def test_the_error_names_the_field_and_both_types(self) -> None:
        with pytest.raises(SchemaConflictError) as caught:
            join_types(pa.list_(pa.int64()), pa.list_(pa.float64()), "/arm:volume")
        assert caught.value.message.startswith(
            "Schema error: Fail to merge schema field 'item' because the from data_type = Float64 does not equal Int64"
        )


def schema(*columns: ComponentColumnDescriptor, **lines: TimelineKind) -> pa.Schema:
    return Schema([IndexColumnDescriptor(n, k) for n, k in lines.items()], columns).to_arrow()


def column(name: str, datatype: pa.DataType, archetype: str | None = None, **flags: bool) -> ComponentColumnDescriptor:
    entity, component = name.split(":")
    return ComponentColumnDescriptor(entity, component, archetype, None, datatype=datatype, **flags)


class TestSchemas:
    def test_columns_of_all_in_the_order_of_a_schema(self) -> None:
        one = schema(column("/b10:v", pa.list_(pa.int8())), frame=TimelineKind.SEQUENCE)
        other = schema(column("/b2:v", pa.list_(pa.null())), t=TimelineKind.DURATION)
        assert join_schemas([one, other]).names == ["rerun.controls.RowId", "frame", "t", "/b2:v", "/b10:v"]
        assert join_schemas([one, other]).equals(join_schemas([other, one, one]), check_metadata=True)

    def test_archetypes_may_differ_and_flags_are_of_all(self) -> None:
        one = schema(column("/a:v", pa.list_(pa.int8()), "B", is_static=True))
        other = schema(column("/a:v", pa.list_(pa.int8()), "A", is_semantically_empty=True))
        for union in (join_schemas([one, other]), join_schemas([other, one])):
            (found,) = Schema.from_arrow(union).component_columns()
            assert (found.archetype, found.is_static, found.is_semantically_empty) == ("A", True, False)

    def test_a_timeline_has_one_kind(self) -> None:
        with pytest.raises(SchemaConflictError, match="field 'frame'"):
            join_schemas([schema(frame=TimelineKind.SEQUENCE), schema(frame=TimelineKind.TIMESTAMP)])

    def test_a_timeline_is_no_component(self) -> None:
        with pytest.raises(SchemaConflictError):
            join_schemas([schema(**{"/a:v": TimelineKind.SEQUENCE}), schema(column("/a:v", pa.list_(pa.int8())))])


class TestFiles:
    def test_one_file_for_equal_schemas(self, tmp_path: Path) -> None:
        folder = RecordingsFolder(tmp_path)
        folder.prepare()
        files = SchemaFiles(folder)
        one, other = schema(column("/a:v", pa.int8())), schema(column("/a:w", pa.int8()))
        assert files.put(one) == files.put(schema(column("/a:v", pa.int8()))) == SchemaFiles(folder).put(one)
        digests = [files.put(one), files.put(other)]
        assert sorted(folder.schemas.names()) == sorted(f"{digest}.arrow" for digest in digests)
        assert SchemaFiles(folder).get(digests[1]).equals(other, check_metadata=True)
        assert SchemaFiles(folder).union(digests * 3).names[1:] == ["/a:v", "/a:w"]

    def test_one_that_another_was_faster_to_write_is_not_written_over(self, tmp_path: Path, monkeypatch) -> None:
        folder = RecordingsFolder(tmp_path / "store")
        folder.prepare()
        created, put, names = LocalFolder.create, LocalFolder.put, list[str]()

        def noted(self: LocalFolder, name: str, data: bytes, *, durable: bool = True) -> None:
            names.append(name)
            put(self, name, data, durable=durable)

        def second(self: LocalFolder, name: str, data: bytes, points: object = None) -> bool:
            assert created(self, name, data)
            return created(self, name, data)

        monkeypatch.setattr(LocalFolder, "create", second)
        monkeypatch.setattr(LocalFolder, "put", noted)
        digest = SchemaFiles(folder).put(schema(column("/a:v", pa.int8())))
        assert len(names) == 2 and all(name.endswith(".draft") for name in names)
        assert list(folder.schemas.names()) == [f"{digest}.arrow"]

    def test_a_damaged_one_is_written_anew_in_one_step(self, tmp_path: Path) -> None:
        folder = RecordingsFolder(tmp_path / "store")
        folder.prepare()
        one = schema(column("/a:v", pa.int8()))
        place = tmp_path / "store" / "schemas" / f"{SchemaFiles(folder).put(one)}.arrow"
        whole = place.read_bytes()
        place.write_bytes(whole[:-9])
        with place.open("rb") as before:
            SchemaFiles(folder).put(one)
            assert before.read() == whole[:-9]
        assert place.read_bytes() == whole
        assert list(folder.schemas.names()) == [place.name]

    def test_damage_is_an_error_that_names_the_file(self, tmp_path: Path) -> None:
        folder = RecordingsFolder(tmp_path)
        folder.prepare()
        digest = SchemaFiles(folder).put(schema(column("/a:v", pa.int8())))
        place = tmp_path / "schemas" / f"{digest}.arrow"
        data = place.read_bytes()
        for at in range(0, len(data), 7):
            place.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
            with pytest.raises(ReadError, match="digest differs") as caught:
                SchemaFiles(folder).get(digest)
            assert caught.value.path == str(place)
        place.unlink()
        with pytest.raises(ReadError, match="is missing") as caught:
            SchemaFiles(folder).get(digest)
        assert caught.value.path == str(place)
