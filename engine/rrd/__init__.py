"""The RRD container: framing, messages, manifest, reader and writer. No streams, no Spark."""

from .arrow_ipc import decode_batch, encode_batch
from .chunk_table import (
    CHUNK_TABLE,
    COMPONENT_TYPE,
    TIMELINE_TYPE,
    ChunkEntry,
    ChunkTableRows,
    batch_of,
    component_row,
    entries_of_table,
    entry_of_row,
    header_of_row,
    table_of_entries,
    types_from_bytes,
    types_to_bytes,
)
from .compression import Compression
from .copying import copy_range, start_writing_back
from .file import RrdFile, WholeFile, verify_file
from .framing import MESSAGE_HEADER_SIZE, STREAM_FOOTER_SIZE, STREAM_HEADER_SIZE, parse_stream_footer
from .listing import Listed
from .manifest_build import build_manifest
from .manifest_table import ManifestTable
from .messages import StoreEntry, store_field
from .output import Output
from .payloads import (
    EncodedPayload,
    FramedPayload,
    VerifiedPayload,
    check_digest,
    damaged_chunk,
    digest_of,
    message_digest,
)
from .positional import NEVER_CHANGES, HeldFile, OpenFiles, PositionalFile, keeping_open, open_positional
from .recovery import RecoveringFile, RecoveryReport
from .runs import FileRun, Run, RunRows, VerifiedRun, divided, says_all
from .writer import MessageWriter, RrdWriter
from .written import WrittenChunks, WrittenListing

__all__ = [
    "CHUNK_TABLE",
    "COMPONENT_TYPE",
    "ChunkEntry",
    "ChunkTableRows",
    "Compression",
    "EncodedPayload",
    "FileRun",
    "FramedPayload",
    "HeldFile",
    "Listed",
    "MESSAGE_HEADER_SIZE",
    "ManifestTable",
    "MessageWriter",
    "NEVER_CHANGES",
    "OpenFiles",
    "Output",
    "PositionalFile",
    "RecoveringFile",
    "RecoveryReport",
    "RrdFile",
    "RrdWriter",
    "Run",
    "RunRows",
    "STREAM_FOOTER_SIZE",
    "STREAM_HEADER_SIZE",
    "StoreEntry",
    "TIMELINE_TYPE",
    "VerifiedPayload",
    "VerifiedRun",
    "WholeFile",
    "WrittenChunks",
    "WrittenListing",
    "batch_of",
    "build_manifest",
    "check_digest",
    "component_row",
    "copy_range",
    "damaged_chunk",
    "decode_batch",
    "digest_of",
    "divided",
    "encode_batch",
    "entries_of_table",
    "entry_of_row",
    "header_of_row",
    "keeping_open",
    "message_digest",
    "open_positional",
    "parse_stream_footer",
    "says_all",
    "start_writing_back",
    "store_field",
    "table_of_entries",
    "types_from_bytes",
    "types_to_bytes",
    "verify_file",
]
