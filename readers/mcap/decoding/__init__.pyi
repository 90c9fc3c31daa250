# Made of the table in __init__.py: python -m tests.run house stubs
from .columns import BLOB as BLOB
from .columns import Decoded as Decoded
from .columns import MessageDecoder as MessageDecoder
from .columns import RawDecoder as RawDecoder
from .columns import SchemaError as SchemaError
from .columns import Surplus as Surplus
from .columns import blobs as blobs
from .flatbuffer import FlatBufferDecoder as FlatBufferDecoder
from .json import CborDecoder as CborDecoder
from .json import JsonDecoder as JsonDecoder
from .protobuf import ProtobufDecoder as ProtobufDecoder
from .ros import IdlDecoder as IdlDecoder
from .ros import Ros1Decoder as Ros1Decoder
from .ros import Ros2Decoder as Ros2Decoder

__all__: list[str]
