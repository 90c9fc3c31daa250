"""Search in a table: queries for rows, and the indexes that make them fast."""

from __future__ import annotations

from typing import Any, Final, Literal

from ..errors import UnsupportedCallError, UsageError
from ..lance import make_index
from .computed_columns import TableParts
from .ranking import METRICS, NearRows, RowsWithWords, vector_column, vector_of, word_columns
from .search import TableQuery

_KINDS: Final = ("vector", "fts", "hybrid", "auto")
_VECTOR_KINDS: Final = ("IVF_FLAT", "IVF_PQ", "IVF_HNSW_SQ", "IVF_HNSW_PQ")
_SCALAR_KINDS: Final = ("BTREE", "BITMAP", "LABEL_LIST")
_HEAP: Final = 1024 * 1024 * 1024


def table_query(
    parts: TableParts,
    /,
    query: Any = None,
    vector_column_name: str | None = None,
    query_type: Literal["vector", "fts", "hybrid", "auto"] = "auto",
    ordering_field_name: str | None = None,
    fts_columns: str | list[str] | None = None,
) -> TableQuery:
    """The query of ``Table.search``."""
    if query_type not in _KINDS:
        raise UsageError(f"query_type is one of {', '.join(_KINDS)}, not {query_type!r}")
    if ordering_field_name is not None:
        raise UnsupportedCallError(f"ordering_field_name={ordering_field_name!r} is of another engine")
    is_text = isinstance(query, str)
    kind: str = query_type
    if kind == "auto":
        kind = "fts" if is_text else "vector"
        if query is None:
            return TableQuery(parts.lance)
    if query is None and kind != "hybrid":
        raise UsageError(f"query_type={query_type!r} needs a query")
    if query is not None and kind in ("vector", "fts") and is_text != (kind == "fts"):
        raise UsageError(f"a query of query_type={kind!r} is {'text' if kind == 'fts' else 'a vector'}, not {query!r}")
    near = words = None
    if kind != "fts" and (query is None or not is_text or vector_column_name is not None):
        schema = parts.lance.newest().schema
        column = vector_column(schema, vector_column_name)
    if kind != "fts" and not is_text:
        near = None if query is None else NearRows(column, vector_of(query, column, schema.field(column).type))
    if kind != "vector":
        columns = word_columns(parts.lance.newest().schema, fts_columns) if fts_columns else ()
        words = RowsWithWords(query if isinstance(query, str) else "", columns) if is_text or columns else None
    return TableQuery(parts.lance, near=near, words=words, is_hybrid=kind == "hybrid", vector_name=vector_column_name)


def make_vector_index(
    parts: TableParts,
    /,
    metric: str = "L2",
    num_partitions: int | None = None,
    num_sub_vectors: int | None = None,
    vector_column_name: str = "vector",
    replace: bool = True,
    accelerator: Any = None,
    index_cache_size: int | None = None,
    *,
    index_type: Literal["IVF_FLAT", "IVF_PQ", "IVF_HNSW_SQ", "IVF_HNSW_PQ"] = "IVF_PQ",
    num_bits: int = 8,
    max_iterations: int = 50,
    sample_rate: int = 256,
    m: int = 20,
    ef_construction: int = 300,
) -> None:
    """Make the index of ``Table.create_index``."""
    if index_type not in _VECTOR_KINDS:
        raise UsageError(f"index_type is one of {', '.join(_VECTOR_KINDS)}, not {index_type!r}")
    if not isinstance(metric, str) or metric.lower() not in METRICS:
        raise UsageError(f"metric is one of {', '.join(METRICS)}, not {metric!r}")
    if index_cache_size is not None:
        raise UnsupportedCallError(f"index_cache_size={index_cache_size!r} is nothing that Lance takes any more")
    if isinstance(accelerator, str) and accelerator not in ("cuda", "mps"):
        raise UsageError(f"accelerator is cuda or mps, not {accelerator!r}")
    if num_partitions is not None and num_partitions < 1:
        raise UsageError(f"num_partitions is at least 1, not {num_partitions}")
    is_pq, is_hnsw = index_type.endswith("PQ"), "HNSW" in index_type
    for name, given, default, goes in (
        ("num_sub_vectors", num_sub_vectors, None, is_pq),
        ("num_bits", num_bits, 8, is_pq),
        ("m", m, 20, is_hnsw),
        ("ef_construction", ef_construction, 300, is_hnsw),
    ):
        if given != default and not goes:
            raise UsageError(f"{name}={given} is nothing of {index_type}")
    schema = parts.lance.newest().schema
    length = schema.field(vector_column(schema, vector_column_name)).type.list_size
    sub_vectors = num_sub_vectors or next(length // part for part in (16, 8, length) if length % part == 0)
    if is_pq and (sub_vectors < 1 or length % sub_vectors):
        raise UsageError(f"dimension ({length}) must be divisible by num_sub_vectors ({num_sub_vectors})")
    options: dict[str, Any] = {
        "metric": metric.lower(),
        "replace": replace,
        "num_partitions": num_partitions,
        "accelerator": accelerator,
        "max_iters": max_iterations,
        "sample_rate": sample_rate,
    }
    options |= {"num_sub_vectors": sub_vectors, "num_bits": num_bits} if is_pq else {}
    options |= {"m": m, "ef_construction": ef_construction} if is_hnsw else {}
    make_index(parts.lance, vector_column_name, index_type, options)


def make_word_indexes(
    parts: TableParts,
    /,
    field_names: str | list[str],
    *,
    ordering_field_names: str | list[str] | None = None,
    replace: bool = False,
    writer_heap_size: int | None = 1024 * 1024 * 1024,
    tokenizer_name: str | None = None,
    with_position: bool = True,
    base_tokenizer: Literal["simple", "raw", "whitespace"] = "simple",
    language: str = "English",
    max_token_length: int | None = 40,
    lower_case: bool = True,
    stem: bool = False,
    remove_stop_words: bool = False,
    ascii_folding: bool = False,
    **_kwargs: Any,
) -> None:
    """Make the indexes of ``Table.create_fts_index``."""
    for name, given, default in (
        ("ordering_field_names", ordering_field_names, None),
        ("writer_heap_size", writer_heap_size, _HEAP),
        ("tokenizer_name", tokenizer_name, None),
    ):
        if given != default and given is not None:
            hint = "Name base_tokenizer, language and stem." if name == "tokenizer_name" else None
            raise UnsupportedCallError(f"{name}={given!r} is of another engine", hint=hint)
    if _kwargs:
        raise TypeError(f"create_fts_index() got an unexpected keyword argument {min(_kwargs)!r}")
    names = word_columns(parts.lance.newest().schema, field_names)
    if not names:
        raise UsageError("field_names names no column")
    options = {
        "replace": replace,
        "with_position": with_position,
        "base_tokenizer": base_tokenizer,
        "language": language,
        "max_token_length": max_token_length,
        "lower_case": lower_case,
        "stem": stem,
        "remove_stop_words": remove_stop_words,
        "ascii_folding": ascii_folding,
    }
    for name in names:
        make_index(parts.lance, name, "INVERTED", options)


def make_value_index(
    parts: TableParts,
    /,
    column: str,
    *,
    replace: bool = True,
    index_type: Literal["BTREE", "BITMAP", "LABEL_LIST"] = "BTREE",
) -> None:
    """Make the index of ``Table.create_scalar_index``."""
    if index_type not in _SCALAR_KINDS:
        raise UsageError(f"index_type is one of {', '.join(_SCALAR_KINDS)}, not {index_type!r}")
    word_columns(parts.lance.newest().schema, column)
    make_index(parts.lance, column, index_type, {"replace": replace})
