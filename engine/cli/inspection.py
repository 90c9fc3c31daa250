"""``chunkmill inspect``: what a file holds, from its footer or summary where it has one."""

from __future__ import annotations

from collections.abc import Iterator

from ... import readers
from ...readers.mcap import ChannelInfo, McapInfo, McapSource
from ..chunk.header import ChunkHeader, TimelineKind
from ..inputs.formats import Format, detect_format
from ..locations import Location
from ..rrd import EncodedPayload, FramedPayload, RrdFile, StoreEntry
from .inspection_report import ColumnReport, EntityReport, FileReport, StoreReport, TimelineReport, summarise_store


def inspect_file(path: Location) -> FileReport:
    """Look into a file. Payloads are read only where neither a footer nor a summary tells what they are.

    Raises ``ReadError`` where the file is missing or damaged.
    """
    return _REPORTS[detect_format(path)](path)


def _rrd(path: Location) -> FileReport:
    file = RrdFile(path)
    stores = tuple(summarise_store(s.kind, s.application_id, s.recording_id, _headers(file, s)) for s in file.stores())
    return FileReport(str(path), "rrd", file.size, stores, {"footer": file.has_footer})


def _headers(file: RrdFile, store: StoreEntry) -> Iterator[tuple[ChunkHeader, int | None]]:
    """The header of each chunk of a store, with the bytes it takes in the file (None: it was migrated)."""
    runs = file.split_entries(store)
    if runs is not None:
        yield from ((entry.header, entry.size) for run in runs for entry in run)
        return
    for chunk in file.chunks(store):
        stored = chunk.payload
        yield chunk.header, stored.size if isinstance(stored, EncodedPayload | FramedPayload) else None


def _mcap(path: Location) -> FileReport:
    info = McapSource(str(path)).info(timing=True)
    timeline = TimelineReport("message_log_time", TimelineKind.TIMESTAMP, info.start_time, info.end_time)
    topics = tuple(_topic(c) for c in sorted(info.channels, key=lambda c: (c.topic, c.id)))
    store = StoreReport("recording", None, None, (timeline,) if info.messages != 0 else (), topics)
    return FileReport(str(path), "mcap", info.bytes, (store,), _facts(info))


def _topic(channel: ChannelInfo) -> EntityReport:
    return EntityReport(
        channel.topic,
        channel.count,
        schema=channel.schema,
        encoding="/".join(e for e in (channel.message_encoding, channel.schema_encoding) if e),
        rate=channel.rate,
        largest_gap=channel.timing.largest_gap if channel.timing is not None else None,
    )


def _facts(info: McapInfo) -> dict[str, str | float | bool]:
    ratio = info.compression_ratio
    return {
        "profile": info.profile,
        "library": info.library,
        "chunks": info.chunks,
        "compression": ", ".join(f"{name or 'none'}" for name in sorted(info.compression)),
        "compression_ratio": 0.0 if ratio is None else round(ratio, 2),
        "uncompressed_bytes": info.uncompressed_bytes,
        "attachments": info.attachments,
        "metadata": info.metadata,
        "scanned": info.scanned,
    }


def _parquet(path: Location) -> FileReport:
    (info,) = readers.ParquetReader(path).info()
    columns = tuple(
        ColumnReport(
            c.name, c.type, c.nullable, c.values, c.bytes, c.uncompressed_bytes, c.encodings, c.compression, c.is_index
        )
        for c in info.columns
    )
    facts: dict[str, str | float | bool] = {
        "rows": info.rows,
        "row_groups": info.row_groups,
        "created_by": info.created_by,
    }
    return FileReport(str(path), "parquet", info.bytes, (), facts, columns, dict(info.key_values))


def _lerobot(path: Location) -> FileReport:
    dataset = readers.LeRobotDataset(path)
    info = dataset.info
    columns = tuple(ColumnReport(f.name, f"{f.dtype}[{', '.join(map(str, f.shape))}]") for f in info.features)
    facts: dict[str, str | float | bool] = {
        "version": info.version,
        "robot_type": info.robot_type or "",
        "fps": f"{info.fps:g}",
        "episodes": len(info.episodes),
        "frames": sum(e.length for e in info.episodes),
        "tasks": len(info.tasks),
    }
    files = {dataset.path / e.data for e in info.episodes}
    num_bytes = sum(f.stat().st_size for f in files if f.exists())
    return FileReport(str(path), "lerobot", num_bytes, (), facts, columns)


_REPORTS = {Format.LEROBOT: _lerobot, Format.MCAP: _mcap, Format.PARQUET: _parquet, Format.RRD: _rrd}
