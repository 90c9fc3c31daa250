"""The RRD container: framing, messages, manifest, reader and writer. No streams, no Spark."""

from .arrow_ipc import Compression, encode_batch
from .digest import VerifiedPayload
from .encoded_payload import EncodedPayload, FramedPayload
from .entry import ChunkEntry
from .file import RrdFile
from .listing import Listed
from .manifest_build import build_manifest
from .manifest_table import ManifestTable
from .message_writer import MessageWriter
from .open_files import OpenFiles, keeping_open
from .recovery import RecoveringFile, RecoveryReport
from .runs import FileRun, Run, RunRows, VerifiedRun, divided, says_all
from .store_entry import StoreEntry
from .writer import RrdWriter
from .written import WrittenChunks, WrittenListing

__all__ = [
    "ChunkEntry",
    "Compression",
    "EncodedPayload",
    "FileRun",
    "FramedPayload",
    "Listed",
    "ManifestTable",
    "MessageWriter",
    "OpenFiles",
    "RecoveringFile",
    "RecoveryReport",
    "RrdFile",
    "RrdWriter",
    "Run",
    "RunRows",
    "StoreEntry",
    "VerifiedPayload",
    "VerifiedRun",
    "WrittenChunks",
    "WrittenListing",
    "build_manifest",
    "divided",
    "encode_batch",
    "keeping_open",
    "says_all",
]
