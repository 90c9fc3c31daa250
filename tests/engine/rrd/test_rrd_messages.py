"""The compiled messages are those of the schema files, and are ours alone."""

from __future__ import annotations

import re
from importlib import resources

import pytest
from chunkmill.engine.rrd import messages
from compile_messages import COMPILED, COMPILED_FOR_SERVER, HERE, SERVER, compile_messages
from google.protobuf import descriptor_pb2, descriptor_pool

_FIELD = re.compile(r"^\s*(optional |repeated )?([\w.]+) (\w+) = (\d+);", re.MULTILINE)
_BLOCK = re.compile(r"^(message|enum) (\w+) \{(.*?)^\}", re.MULTILINE | re.DOTALL)
_VALUE = re.compile(r"^\s*(\w+) = (\d+);", re.MULTILINE)


def compiled() -> descriptor_pb2.FileDescriptorSet:
    return descriptor_pb2.FileDescriptorSet.FromString(COMPILED.read_bytes())


def fields_in_source(body: str) -> set[tuple[str, int, str, bool, bool]]:
    return {
        (name, int(number), kind.rpartition(".")[2], label == "optional ", label == "repeated ")
        for label, kind, name, number in _FIELD.findall(body)
    }


def fields_in_set(message: descriptor_pb2.DescriptorProto) -> set[tuple[str, int, str, bool, bool]]:
    kinds = descriptor_pb2.FieldDescriptorProto
    return {
        (
            f.name,
            f.number,
            f.type_name.rpartition(".")[2] or kinds.Type.Name(f.type).removeprefix("TYPE_").lower(),
            f.proto3_optional,
            f.label == kinds.LABEL_REPEATED,
        )
        for f in message.field
    }


@pytest.mark.parametrize("name", ["messages.proto", "common.proto"])
def test_compiled_set_says_what_the_source_says(name: str) -> None:
    file = next(f for f in compiled().file if f.name == name)
    source = (HERE / name).read_text()
    blocks = {(kind, title): body for kind, title, body in _BLOCK.findall(source)}
    assert {("message", m.name) for m in file.message_type} | {("enum", e.name) for e in file.enum_type} == set(blocks)
    for message in file.message_type:
        assert fields_in_set(message) == fields_in_source(blocks["message", message.name])
    for enum in file.enum_type:
        found = {(v.name, v.number) for v in enum.value}
        assert found == {(n, int(v)) for n, v in _VALUE.findall(blocks["enum", enum.name])}


def test_compiled_set_is_what_the_compiler_makes() -> None:
    pytest.importorskip("grpc_tools")
    assert descriptor_pb2.FileDescriptorSet.FromString(compile_messages()) == compiled()


def test_compiled_set_of_the_server_is_what_the_compiler_makes() -> None:
    pytest.importorskip("grpc_tools")
    made = descriptor_pb2.FileDescriptorSet.FromString(compile_messages(SERVER / "cloud.proto"))
    assert made == descriptor_pb2.FileDescriptorSet.FromString(COMPILED_FOR_SERVER.read_bytes())


def test_messages_live_in_a_pool_of_their_own() -> None:
    name = messages.ArrowMsg.DESCRIPTOR.full_name
    assert name == "rerun.log_msg.v1alpha1.ArrowMsg"
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName(name)


def test_compiled_set_is_package_data() -> None:
    assert resources.files("chunkmill.engine.rrd").joinpath("messages.binpb").is_file()


def test_presence_is_kept_for_zeros() -> None:
    assert messages.ArrowMsg(is_static=False).SerializeToString() == b"\x38\x00"
    assert messages.tuid_message(bytes(16)).SerializeToString() == b"\x09" + bytes(8) + b"\x11" + bytes(8)


def test_tuids_are_big_endian_outside_and_little_endian_inside() -> None:
    tuid = bytes(range(16))
    message = messages.tuid_message(tuid)
    assert message.SerializeToString() == b"\x09" + tuid[:8][::-1] + b"\x11" + tuid[8:][::-1]
    assert messages.tuid_bytes(message) == tuid
