"""``ros1msg`` schema text: a definition followed by those of the types it uses, as ``gendeps --cat`` has it."""

from __future__ import annotations

from .decoded import SchemaError
from .message_types import Struct, is_wide
from .ros_types import ROS1, parse_ros


def parse_ros1(schema_name: str, schema_data: bytes) -> Struct:
    """The type that ``schema_data`` defines for ``schema_name``; see :func:`parse_ros`.

    >>> parse_ros1("my/Stamped", b"time stamp\\nchar c\\nbyte b").arrow
    StructType(struct<stamp: struct<sec: uint32, nanosec: uint32>, c: uint8, b: int8>)
    """
    node = parse_ros(schema_name, schema_data, ROS1)
    if is_wide(node):
        raise SchemaError(f"{schema_name} has a wstring, which ROS 1 does not know")
    return node
