"""The RRD container: framing, messages, manifest, reader and writer. No streams, no Spark."""

from .arrow_checks import check_columns, check_file, expanded_size
from .arrow_ipc import ARROW_ERRORS, END_OF_STREAM, decode_batch, encode_batch, has_dictionary, stream_of
from .chunk_table import CHUNK_TABLE, COMPONENT_TYPE, TIMELINE_TYPE, ChunkEntry, ChunkTable
from .compression import Compression
from .copying import copy_range, start_writing_back
from .file import RrdFile
from .footer_groups import Each, FooterGroup, ListedStore, read_footers
from .framing import MESSAGE_HEADER_SIZE, STREAM_FOOTER_SIZE, STREAM_HEADER_SIZE, parse_stream_footer
from .manifest_writing import build_manifest
from .messages import StoreEntry, message_classes, message_head, message_tail, store_field
from .output import Output
from .payloads import (
    EncodedPayload,
    FramedPayload,
    VerifiedPayload,
    check_digest,
    damaged_chunk,
    digest_of,
    digest_rows,
    message_digest,
    verified_after_store,
)
from .positional import (
    ANYWHERE,
    NEVER_CHANGES,
    HeldFile,
    OpenFiles,
    PositionalFile,
    file_identity,
    keeping_open,
    open_positional,
)
from .recent import Recent, state_of
from .recovery import RecoveringFile, RecoveryReport, announced_first
from .runs import FileRun, Listed, Run, RunRows, VerifiedRun
from .table_columns import sequence_codes, types_from_bytes, types_to_bytes
from .times import MIXED, ByChunk, Times, TimesDirectory, Validity
from .times_writing import TimesWriter, part_end
from .told_chunks import ToldChunks, difference_of, lying_footer
from .verification import Findings, Look, Told, Verification, verify_file
from .writer import MessageWriter, RrdWriter, WrittenChunks

__all__ = [
    "ANYWHERE",
    "ARROW_ERRORS",
    "ByChunk",
    "CHUNK_TABLE",
    "COMPONENT_TYPE",
    "ChunkEntry",
    "ChunkTable",
    "Compression",
    "END_OF_STREAM",
    "Each",
    "EncodedPayload",
    "FileRun",
    "Findings",
    "FooterGroup",
    "FramedPayload",
    "HeldFile",
    "Listed",
    "ListedStore",
    "Look",
    "MESSAGE_HEADER_SIZE",
    "MIXED",
    "MessageWriter",
    "NEVER_CHANGES",
    "OpenFiles",
    "Output",
    "PositionalFile",
    "Recent",
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
    "Times",
    "TimesDirectory",
    "TimesWriter",
    "Told",
    "ToldChunks",
    "Validity",
    "Verification",
    "VerifiedPayload",
    "VerifiedRun",
    "WrittenChunks",
    "announced_first",
    "build_manifest",
    "check_columns",
    "check_digest",
    "check_file",
    "copy_range",
    "damaged_chunk",
    "decode_batch",
    "difference_of",
    "digest_of",
    "digest_rows",
    "encode_batch",
    "expanded_size",
    "file_identity",
    "has_dictionary",
    "keeping_open",
    "lying_footer",
    "message_classes",
    "message_digest",
    "message_head",
    "message_tail",
    "open_positional",
    "parse_stream_footer",
    "part_end",
    "read_footers",
    "sequence_codes",
    "start_writing_back",
    "state_of",
    "store_field",
    "stream_of",
    "types_from_bytes",
    "types_to_bytes",
    "verified_after_store",
    "verify_file",
]
