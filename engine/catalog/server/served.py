"""Datasets of a served catalog as sources of samples, whose chunks are fetched when they are needed."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import lz4.block
import numpy as np
import pyarrow as pa

from ...chunk import Chunk, ChunkData, Schema
from ...errors import MissingExtraError, NotFoundError, ReadError, UnreachableError, UsageError, extra_command
from ...limits import MIB
from ...query import AnswerColumns, QueriedSegment, Query
from ...recordings import join_schemas
from ...rrd import ChunkTable, Compression, Recent, Times, decode_batch, parse_manifest, seal
from .chunks import chunk_ranges
from .lake import Integers
from .protocol import ENTRY_ID_HEADER, SERVICE, RrdManifest, cloud, entry_id_of, part_of, rows_in

if TYPE_CHECKING:
    import grpc

_SCHEMES: Final = {"rerun+http": False, "rerun+https": True, "rerun": True}
_AGAIN: Final = frozenset(("UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED"))
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 1 << 30),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)
_CALL_SECONDS: Final = 300.0
_LONGEST_PAUSE: Final = 5.0
_CHANNELS: Final = "_channels"
_FETCH_BYTES: Final = 16 * MIB
_DATASET: Final = 1
_RECENT: Final[Recent[ChunkData]] = Recent(128 * MIB, 16 * MIB)


@dataclass(frozen=True)
class ServedDataset:
    """A dataset of a served catalog (``chunkmill serve``), as a source of samples for training.

    It gives the same samples as the dataset itself, and fetches only the chunks that samples need. Later registrations
    do not change a pinned source. If a call fails because the server or the network is down, it is repeated for some
    time, and samples continue at the same position. It can be pickled; each process has its own connection.

    Parameters
    ----------
    url
        The address of the server, ``rerun+http://host:port`` or ``rerun+https://host:port``.
    name
        The name of the dataset.
    token
        The token for the server, by default the environment variable ``REDAP_TOKEN``.
    certificates
        A PEM file of trusted certificates, by default those of gRPC.
    retry_seconds
        How long to retry a failed call.

    Raises
    ------
    ValueError
        ``url`` is not such an address.

    Examples
    --------
    >>> ServedDataset("rerun+http://127.0.0.1:51234", "drives")
    ServedDataset(url='rerun+http://127.0.0.1:51234', name='drives')
    """

    url: str
    name: str
    token: str | None = field(default=None, repr=False, kw_only=True)
    certificates: str | os.PathLike[str] | None = field(default=None, repr=False, kw_only=True)
    retry_seconds: float = field(default=60.0, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        scheme, _, address = self.url.partition("://")
        if scheme not in _SCHEMES or not address.strip("/"):
            raise UsageError(
                f"{self.url!r} is not the address of a server",
                hint="Give an address such as rerun+http://127.0.0.1:51234.",
            )
        try:
            import grpc  # noqa: F401 (a clear error now, in place of one in the first call)
        except ImportError as failure:
            raise MissingExtraError("served datasets need the package grpcio", hint=extra_command("serve")) from failure

    def queried(self, query: Query) -> tuple[AnswerColumns, list[QueriedSegment]]:
        """The columns of a query result, and the current segments on the server.

        Raises ``NotFoundError`` if there is no such dataset, ``UnreachableError`` if the server does not answer.
        """
        id_ = self._id()
        parts = self.call("ScanSegmentTable", cloud("ScanSegmentTableRequest")(columns=["rerun_segment_id"]), id_)
        names = sorted({name for part in parts for name in rows_in(part.data)["rerun_segment_id"].to_pylist()})
        sources = [self._segment(id_, name) for name in names]
        schemas = [source.schema for source in sources]
        columns = query.columns(join_schemas(schemas))
        segments = []
        for source, schema in zip(sources, schemas, strict=True):
            keys = frozenset((c.entity_path, c.component) for c in Schema.from_arrow(schema).component_columns())
            span = source.span(columns.query.index)
            segments.append(QueriedSegment(source, source.segment_id, columns, keys, span))
        return columns, segments

    def _id(self) -> str:
        """The id of the dataset."""
        wanted = cloud("FindEntriesRequest")(filter={"name": self.name, "entry_kinds": [_DATASET]})
        (answer,) = self.call("FindEntries", wanted, None)
        if not answer.entries:
            raise NotFoundError(f"No dataset found with name '{self.name}' at {self.url}")
        return str(entry_id_of(answer.entries[0].id))

    def _segment(self, id_: str, segment_id: str) -> ServedSegment:
        answers = self.call("GetRrdManifest", cloud("GetRrdManifestRequest")(segment_id={"id": segment_id}), id_)
        if len(answers) != 1:
            raise ReadError(f"{self.url} returned {len(answers)} manifests of segment {segment_id!r} instead of one")
        return ServedSegment(self, id_, segment_id, answers[0].rrd_manifest.SerializeToString())

    def call(self, name: str, request: Any, id_: str | None) -> list[Any]:
        """All responses of a call. If the connection fails, the call is repeated from its beginning."""
        import grpc

        end = time.monotonic() + self.retry_seconds
        pause = 0.05
        data = request.SerializeToString()
        while True:
            try:
                return self._answers(name, data, id_)
            except grpc.RpcError as error:
                code, text = error.code(), error.details() or ""
                if code.name not in _AGAIN:
                    raise _own_error(code, f"{self.url}: {text}") from error
                if time.monotonic() + pause > end:
                    raise UnreachableError(
                        f"{self.url} does not answer: {code.name}, {text}",
                        hint="When the server answers again, continue from the saved state of the job.",
                        transient=True,
                    ) from error
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _answers(self, name: str, data: bytes, id_: str | None) -> list[Any]:
        token = self.token or os.environ.get("REDAP_TOKEN")
        metadata = [] if id_ is None else [(ENTRY_ID_HEADER, id_)]
        metadata += [("authorization", f"Bearer {token}")] if token else []
        path, response = f"/{SERVICE}/{name}", cloud(f"{name}Response").FromString
        given = {"metadata": metadata, "timeout": _CALL_SECONDS}
        if name == "FindEntries":
            return [self._channel().unary_unary(path, response_deserializer=response)(data, **given)]
        return list(self._channel().unary_stream(path, response_deserializer=response)(data, **given))

    def _channel(self) -> grpc.Channel:
        """The connection of this process; a connection from before a fork is not used."""
        channels: dict[int, grpc.Channel] = self.__dict__.setdefault(_CHANNELS, {})
        return channels.get(os.getpid()) or channels.setdefault(os.getpid(), self._connected())

    def _connected(self) -> grpc.Channel:
        import grpc

        scheme, _, address = self.url.partition("://")
        address = address.rstrip("/")
        if not _SCHEMES[scheme]:
            return grpc.insecure_channel(address, _OPTIONS)
        trusted = None if self.certificates is None else Path(self.certificates).read_bytes()
        return grpc.secure_channel(address, grpc.ssl_channel_credentials(trusted), _OPTIONS)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != _CHANNELS}


def _own_error(code: grpc.StatusCode, text: str) -> Exception:
    if code.name in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
        return UsageError(text, hint="Give a token of `chunkmill serve token`.")
    if code.name == "NOT_FOUND":
        return ReadError(
            f"{text}; it existed when the source was created",
            hint="The dataset has changed, and its old version was removed. Create the source again, and restart.",
        )
    return ReadError(text)


@dataclass(frozen=True)
class ServedSegment:
    """A segment of a served dataset: its chunks as one layer, with a manifest from the server. Picklable."""

    dataset: ServedDataset
    dataset_id: str
    segment_id: str
    manifest: bytes

    def __repr__(self) -> str:
        return f"ServedSegment({self._digest})"

    @cached_property
    def _digest(self) -> str:
        return hashlib.blake2b(self.layer.table.chunk_ids.tobytes(), digest_size=16).hexdigest()

    @property
    def stored_bytes(self) -> int:
        """The bytes of all chunks."""
        return int(self.layer.table.sizes.sum())

    @property
    def has_times(self) -> bool:
        """False: times come from the chunks."""
        return False

    @property
    def layer_names(self) -> Sequence[str]:
        """The default layer name."""
        return ["base"]

    def references(self) -> Sequence[ServedChunks]:
        """The layer."""
        return [self.layer]

    def times(self) -> Sequence[Times | None]:
        """None are held; chunks are read instead."""
        return [None]

    @cached_property
    def layer(self) -> ServedChunks:
        """The chunks. Raises ``ReadError`` for an invalid manifest."""
        message = RrdManifest.FromString(self.manifest)
        keys = rows_in(message.data)["chunk_key"].to_pylist()
        path = f"{self.dataset.url}/{self.dataset.name}/{self.segment_id}"
        table = parse_manifest(seal(message, path=path, offset=0, messages_end=1 << 62)).table
        return ServedChunks(self.dataset, self.dataset_id, table, keys, path)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the chunks."""
        return Schema.from_headers([entry.header for entry in self.layer.table.entries()]).to_arrow()

    def span(self, index: str | None) -> tuple[int, int] | None:
        """The first and the last value of an index, or None."""
        starts, ends, is_there = chunk_ranges(self.layer.table, index or "")
        return (int(starts[is_there].min()), int(ends[is_there].max())) if is_there.any() else None

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return ServedSegment, (self.dataset, self.dataset_id, self.segment_id, self.manifest)


@dataclass(frozen=True)
class ServedChunks:
    """Chunks on a server, by keys from the server."""

    dataset: ServedDataset
    dataset_id: str
    table: ChunkTable
    keys: Sequence[bytes]
    path: str

    def read(self, rows: Integers) -> Iterator[ChunkData]:
        """The chunks of some rows, in the order of ``rows``, some MiB at a time. Raises ``ReadError``."""
        sizes = np.maximum(self.table.sizes[rows], 1).astype(np.int64)
        group = (np.cumsum(sizes) - sizes) // _FETCH_BYTES
        for number in np.unique(group).tolist():
            some = rows[group == number].tolist()
            recent = {row: _RECENT.find((self.path, self.keys[row])) for row in some}
            fetched = self._fetched([row for row in some if recent[row] is None])
            for row in some:
                yield fetched[row] if row in fetched else recent[row]  # type: ignore[misc]

    def _fetched(self, rows: Sequence[int]) -> Mapping[int, ChunkData]:
        if not rows:
            return {}
        wanted = pa.table({"chunk_key": pa.array([self.keys[row] for row in rows], pa.binary())})
        request = cloud("FetchChunksRequest")(chunk_infos=[part_of(wanted)])
        by_id: dict[bytes, Any] = {}
        for answer in self.dataset.call("FetchChunks", request, self.dataset_id):
            for chunk in answer.chunks:
                by_id[chunk.chunk_id.time_ns.to_bytes(8, "big") + chunk.chunk_id.inc.to_bytes(8, "big")] = chunk
        made: dict[int, ChunkData] = {}
        for row in rows:
            chunk_id = self.table.chunk_ids[row].tobytes()
            if chunk_id not in by_id:
                raise ReadError(f"the server did not send chunk {chunk_id.hex()}", path=self.path)
            made[row] = data = self._decoded(by_id[chunk_id])
            if data.chunk_id != chunk_id:
                raise ReadError(f"the server sent another chunk instead of {chunk_id.hex()}", path=self.path)
            _RECENT.keep((self.path, self.keys[row]), data, int(self.table.uncompressed_sizes[row]))
        return made

    def _decoded(self, message: Any) -> ChunkData:
        payload = message.payload
        if message.compression == int(Compression.LZ4):
            try:
                payload = lz4.block.decompress(payload, uncompressed_size=message.uncompressed_size)
            except (lz4.block.LZ4BlockError, ValueError, MemoryError) as error:
                raise ReadError(f"the server sent a chunk that is not an LZ4 block: {error}", path=self.path) from error
        batch = decode_batch(payload, path=self.path, offset=None, what="a chunk")
        (chunk,) = Chunk.from_record_batch(batch)
        data: ChunkData = chunk.data
        return data
