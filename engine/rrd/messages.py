"""The protobuf messages of the RRD container, as classes of the ``protobuf`` library.

They are made from ``messages.binpb`` in a descriptor pool of their own, so that another package in the same process
(Rerun's, or the user's) may register messages of the same names.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from ..errors import ReadError


def _load_pool() -> descriptor_pool.DescriptorPool:
    compiled = resources.files(__package__).joinpath("messages.binpb").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(compiled).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


_POOL = _load_pool()


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(name))


SetStoreInfo = _message("rerun.log_msg.v1alpha1.SetStoreInfo")
StoreInfo = _message("rerun.log_msg.v1alpha1.StoreInfo")
ArrowMsg = _message("rerun.log_msg.v1alpha1.ArrowMsg")
BlueprintActivationCommand = _message("rerun.log_msg.v1alpha1.BlueprintActivationCommand")
RrdFooter = _message("rerun.log_msg.v1alpha1.RrdFooter")
RrdManifest = _message("rerun.log_msg.v1alpha1.RrdManifest")
StoreId = _message("rerun.common.v1alpha1.StoreId")
Tuid = _message("rerun.common.v1alpha1.Tuid")

SOURCE_OTHER = 6
ENCODING_ARROW_IPC = 1
ENCODER_VERSION_V0 = 1


def parse(kind: Any, data: bytes, *, path: str, offset: int | None) -> Any:
    """Parse ``data`` as a message of ``kind``; raises :class:`ReadError`."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise ReadError(
            f"a damaged {kind.DESCRIPTOR.name} message: {error}",
            path=path,
            offset=offset,
            hint="The file is damaged; copy it again, or read it with recover=True.",
        ) from error


def require(message: Any, *fields: str, path: str, offset: int | None) -> None:
    """Raise :class:`ReadError` unless every one of ``fields`` is present in ``message``."""
    for field in fields:
        if not message.HasField(field):
            raise ReadError(
                f"missing required field {message.DESCRIPTOR.full_name}.{field}",
                path=path,
                offset=offset,
                hint="The file is damaged, or its writer is.",
            )


def tuid_message(tuid: bytes) -> Any:
    """A 16-byte TUID (big-endian halves) as its protobuf message."""
    return Tuid(time_ns=int.from_bytes(tuid[:8], "big"), inc=int.from_bytes(tuid[8:], "big"))


def tuid_bytes(message: Any) -> bytes:
    """The inverse of :func:`tuid_message`."""
    return int(message.time_ns).to_bytes(8, "big") + int(message.inc).to_bytes(8, "big")
