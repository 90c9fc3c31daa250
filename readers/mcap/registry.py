"""The channels and schemas of a file, as their records are met."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from mcap import records as library

from ...engine.errors import ReadError
from ...engine.limits import MAX_SCHEMA_BYTES, check_limit
from .records import CHANNEL, DAMAGED_HINT, SCHEMA, malformed, parse_record, record_name


class Schema(NamedTuple):
    """A Schema record: ids are 1 and up, 0 meaning none."""

    id: int
    name: str
    encoding: str
    data: bytes


class Channel(NamedTuple):
    """A Channel record; ``metadata`` as (key, value) pairs in file order."""

    id: int
    topic: str
    message_encoding: str
    schema_id: int
    metadata: tuple[tuple[str, str], ...]


class Registry:
    """Channels and schemas by id. A record may come again and again; another one with the same id is damage."""

    def __init__(self, path: str, channels: Iterable[Channel] = (), schemas: Iterable[Schema] = ()) -> None:
        self._path = path
        self._channels = {c.id: c for c in channels}
        self._schemas = {s.id: s for s in schemas}
        self._seen: dict[int, set[bytes]] = {SCHEMA: set(), CHANNEL: set()}

    @property
    def channels(self) -> Mapping[int, Channel]:
        """Channels by id."""
        return self._channels

    @property
    def schemas(self) -> Mapping[int, Schema]:
        """Schemas by id."""
        return self._schemas

    def add(self, opcode: int, body: bytes, *, offset: int) -> None:
        """Take in the body of a Schema or Channel record found at (or in the chunk at) ``offset``."""
        if body in self._seen[opcode]:
            return
        if opcode == SCHEMA:
            self._add_schema(body, offset)
        else:
            self._add_channel(body, offset)
        self._seen[opcode].add(body)

    def channel(self, channel_id: int, *, offset: int | None) -> Channel:
        """The channel of a message met at ``offset``; raises when no record defines it."""
        channel = self._channels.get(channel_id)
        if channel is None:
            raise ReadError(
                f"there is a message of channel {channel_id}, which no Channel record defines",
                path=self._path,
                offset=offset,
                hint=DAMAGED_HINT,
            )
        return channel

    def schema_of(self, channel: Channel) -> Schema | None:
        """The schema of a channel; None when it has none or its record is missing."""
        return self._schemas.get(channel.schema_id)

    def _add_schema(self, body: bytes, offset: int) -> None:
        check_limit(len(body), MAX_SCHEMA_BYTES, path=self._path, offset=offset, what="the length of a Schema record")
        record = parse_record(library.Schema.read, SCHEMA, body, path=self._path, offset=offset)
        if record.id == 0:
            raise malformed(SCHEMA, "its id is 0, which means no schema", path=self._path, offset=offset)
        schema = Schema(record.id, record.name, record.encoding, bytes(record.data))
        if self._schemas.setdefault(schema.id, schema) != schema:
            raise self._conflict(SCHEMA, schema.id, offset)

    def _add_channel(self, body: bytes, offset: int) -> None:
        check_limit(len(body), MAX_SCHEMA_BYTES, path=self._path, offset=offset, what="the length of a Channel record")
        record = parse_record(library.Channel.read, CHANNEL, body, path=self._path, offset=offset)
        metadata = tuple(record.metadata.items())
        channel = Channel(record.id, record.topic, record.message_encoding, record.schema_id, metadata)
        known = self._channels.setdefault(channel.id, channel)
        if known[:4] != channel[:4]:
            raise self._conflict(CHANNEL, channel.id, offset)

    def _conflict(self, opcode: int, id_: int, offset: int) -> ReadError:
        return ReadError(
            f"the {record_name(opcode)} with id {id_} is defined again, differently",
            path=self._path,
            offset=offset,
            hint=DAMAGED_HINT,
        )
