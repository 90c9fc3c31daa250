"""The RRD container: framing, messages, manifest, reader and writer. No streams, no Spark."""

from .arrow_ipc import Compression, encode_batch
from .digest import VerifiedPayload, digests_of
from .encoded_payload import EncodedPayload, FramedPayload
from .entry import ChunkEntry
from .file import RrdFile
from .listing import Listed, listing_of
from .manifest_build import build_manifest
from .manifest_table import ManifestTable
from .message_writer import MessageWriter
from .passage import FilePassage, Passage, divided, says_all
from .recovery import RecoveringFile, RecoveryReport
from .store_entry import StoreEntry
from .verified_passage import VerifiedPassage
from .writer import RrdWriter

__all__ = [
    "ChunkEntry",
    "Compression",
    "EncodedPayload",
    "FilePassage",
    "FramedPayload",
    "Listed",
    "ManifestTable",
    "MessageWriter",
    "Passage",
    "RecoveringFile",
    "RecoveryReport",
    "RrdFile",
    "RrdWriter",
    "StoreEntry",
    "VerifiedPassage",
    "VerifiedPayload",
    "build_manifest",
    "digests_of",
    "divided",
    "encode_batch",
    "listing_of",
    "says_all",
]
