"""Limits on the demands of a file, helpers that read within them, and settings of glibc's allocator.

A length, a count or a depth from a file is compared with one of these (and with the bytes left in the file) before
memory is allocated for it.
"""

from __future__ import annotations

import ctypes
import os
from typing import BinaryIO, Final

from .errors import ReadError

MIB: Final = 1024 * 1024

MAX_CHUNK_UNCOMPRESSED: Final = 1024 * MIB
"""Largest uncompressed size of one MCAP chunk or RRD payload, in bytes."""

MAX_BAG_HEADER: Final = MIB
"""Largest header of a record of a bag, without its data, in bytes."""

FREE_EXPANSION: Final = 256 * MIB
"""Compressed data may expand to this many bytes whatever its ratio."""

MAX_COMPRESSION_RATIO: Final = 100
"""Above :data:`FREE_EXPANSION`, the ratio of uncompressed to compressed bytes may not exceed this. (LZ4 allows 255.)"""

MAX_OTHER_RECORDS: Final = 1_000_000
"""Most records of one MCAP chunk that are not messages."""

MAX_FOOTER: Final = 1024 * MIB
"""Largest RRD footer or MCAP summary section, in bytes."""

FREE_PAGE: Final = 64 * MIB
"""A page of a Parquet file may expand to this many bytes whatever its ratio."""

FREE_CELLS: Final = 256 * MIB
"""A Parquet file may hold this many values (rows times columns) whatever its size."""

MAX_VALUES_PER_BYTE: Final = 1000
"""Above :data:`FREE_CELLS`, a Parquet file may not hold more values than this for each of its bytes."""

MAX_PARQUET_FOOTER: Final = 64 * MIB
"""Largest footer of a Parquet file, in bytes; in memory it takes many times as much."""

MAX_NESTING: Final = 64
"""Deepest nesting of a message type, an Arrow type or an entity path expression."""

MAX_SCHEMA_BYTES: Final = 16 * MIB
"""Largest message definition or descriptor set, in bytes."""

MAX_METADATA: Final = 64 * MIB
"""Largest size of all Metadata records of one MCAP together, in bytes."""

MAX_ATTACHMENTS: Final = 1024 * MIB
"""Largest size of all attachments of one MCAP together, which become one chunk, in bytes."""

MAX_INDEXED_TIMES: Final = 16 * MIB
"""Most messages of one MCAP whose times are examined together for rates and gaps."""

MAX_MESH: Final = 256 * MIB
"""Largest mesh file that a robot description may name, in bytes."""

MAX_SCHEMA_FIELDS: Final = 65_536
"""Most leaf columns that one message definition may expand to, and most columns of a table."""

MAX_ELEMENTS: Final = 4 * MIB
"""Most elements of variable size (strings, structs with strings, protobuf fields) that are decoded in one piece."""

MAX_CELLS: Final = 32 * MIB
"""Most values (rows times leaf columns) that a batch of messages may become if their bytes do not limit these."""

MAX_EPISODES: Final = 1_000_000
"""Most episodes of a LeRobot dataset, and most of its tasks."""

MAX_RECURSIVE_MESSAGE: Final = 8 * MIB
"""Largest protobuf message of a type that contains itself, in bytes: it is parsed into objects, which are large."""

SPLIT_BYTES: Final = 64 * MIB
"""Uncompressed bytes that one split should hold."""

MAX_JQ_MEMORY: Final = 1024 * MIB
"""Address space of the process that runs jq programs, in bytes."""

MAX_JQ_ANSWER: Final = 256 * MIB
"""Largest answer of a jq program to one request, in bytes of JSON."""

MAX_POINT_FIELDS: Final = 256
"""Most different fields of the points in one chunk of clouds, each a column of its own."""

MAX_POINT_FIELD_OVERLAP: Final = 8
"""How many overlapping fields may read a byte of a point, on average."""

MAX_DEPTH_IMAGE: Final = 256 * MIB
"""Largest depth image in PNG that a lens decodes, in bytes of float32."""

MAX_DEPTH_IMAGES: Final = 512 * MIB
"""Largest size of all PNG depth images of one chunk together, in bytes of float32."""

MAX_FRAME_PIXELS: Final = 64 * MIB
"""Most pixels of a frame of video: 8,192 x 8,192."""

MAX_DOWNLOAD: Final = 64 * 1024 * MIB
"""Largest file that is downloaded as a whole, if its HTTP server gives no ranges, in bytes."""

MAX_VIDEO_MEMORY: Final = 4096 * MIB
"""Address space of a process that reads, decodes or encodes video, in bytes."""

MAX_HDF5_MEMORY: Final = 900 * MIB
"""Address space of a process that runs h5py, in bytes."""

MAX_HDF5_CHUNK: Final = 128 * MIB
"""Largest storage chunk, and largest row, of a dataset of HDF5, in bytes."""

FREE_HDF5: Final = 64 * MIB
"""The datasets of an HDF5 file may have this many bytes whatever its size."""

MAX_HDF5_EXPANSION: Final = 1100
"""Above :data:`FREE_HDF5`, HDF5 datasets may not have more bytes than this for each byte of the file, as in deflate."""

MAX_LANDING_FILE: Final = 1024 * MIB
"""Largest file of a landing log, in bytes."""


def read_exact(file: BinaryIO, size: int, *, path: str, what: str) -> bytes:
    """Read exactly ``size`` bytes from the position of ``file``, or raise a :class:`ReadError` that names the missing
    part.
    """
    start = file.tell()
    data = file.read(size)
    if len(data) != size:
        raise ReadError(
            f"the file ends inside {what}: {size} bytes expected, {len(data)} left",
            path=path,
            offset=start,
            hint="The file is truncated; copy it again, or read it with recover=True.",
        )
    return data


def read_sized(file: BinaryIO, size: int, *, path: str, what: str, file_size: int, cap: int) -> bytes:
    """Like :func:`read_exact`, for a ``size`` that the file declares; it is checked before memory is allocated."""
    start = file.tell()
    check_limit(size, min(cap, file_size - start), path=path, offset=start, what=f"the length of {what}")
    return read_exact(file, size, path=path, what=what)


def check_limit(value: int, cap: int, *, path: str, offset: int | None, what: str) -> int:
    """Return ``value`` if it is in ``0..cap``, else raise a :class:`ReadError`."""
    if not 0 <= value <= cap:
        raise ReadError(
            f"{what} is {value:,}, more than the {max(cap, 0):,} possible here",
            path=path,
            offset=offset,
            hint="The file is damaged or malicious.",
        )
    return value


def check_expansion(compressed: int, uncompressed: int, *, path: str, offset: int | None, what: str) -> int:
    """Return the declared ``uncompressed`` size if it is plausible for ``compressed`` bytes, else raise."""
    cap = min(MAX_CHUNK_UNCOMPRESSED, max(FREE_EXPANSION, compressed * MAX_COMPRESSION_RATIO))
    return check_limit(uncompressed, cap, path=path, offset=offset, what=f"the uncompressed size of {what}")


def is_text(name: str) -> bool:
    """Return False if a name from outside has a lone surrogate, which UTF-8 cannot encode."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_text(name: str) -> str:
    """A name from outside as text that can be written: bytes that are not UTF-8 are escaped.

    >>> as_text("drive\\udcff.mcap")
    'drive\\\\udcff.mcap'
    """
    return name.encode("utf-8", "backslashreplace").decode()


_MMAP_THRESHOLD, _TRIM_THRESHOLD, _MOST_ARENAS = -3, -1, -8
"""Numbers of glibc's ``mallopt``."""
_ARROW_POOL: Final = "ARROW_DEFAULT_MEMORY_POOL"


def keep_freed_memory(arenas: int | None = None, most: int = 64 << 20) -> None:
    """Let glibc keep up to ``most`` freed bytes for reuse, instead of giving them back to the system at once.

    Every chunk allocates buffers of a few hundred kB, and each of their pages would cost a fault again: 74,000 in an
    optimised collect of 400 MB, now 12,000 (``benchmarks/bench_rrd.py``). Each of glibc's arenas keeps so much, and
    :func:`give_back_freed_memory` reaches only the first. glibc makes up to eight arenas for each core, as threads
    need them; ``arenas`` sets another limit.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    mallopt(_MMAP_THRESHOLD, 32 << 20)
    mallopt(_TRIM_THRESHOLD, most)
    if arenas is not None:
        mallopt(_MOST_ARENAS, arenas)


def let_glibc_serve_arrow() -> None:
    """Let Arrow take its memory from glibc; call it before anything imports pyarrow.

    Arrow's own pool, mimalloc, keeps freed memory for its thread, and cannot give back that of other threads: 400 MiB
    for each handler that decompressed 200 (``tests/fuzz/bombs_at_once.py``). A pool set in the environment stays.
    """
    os.environ.setdefault(_ARROW_POOL, "system")


def give_back_freed_memory() -> None:
    """Return to the system the freed memory that Arrow's pool and glibc keep for later."""
    import pyarrow as pa

    pool = pa.default_memory_pool()
    pool.release_unused()
    if pool.backend_name == "system":  # release_unused has trimmed glibc
        return
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):  # another C library
        return
