"""Search in a table: queries for rows, and the indexes that make them fast."""

from __future__ import annotations

from typing import Any, Final, Literal

from ..errors import UnsupportedCallError, UsageError
from ..lance import make_index
from .ranking import METRICS, NearRows, RowsWithWords, vector_column, vector_of, word_columns
from .search import TableQuery
from .view_refresh import ViewRefresh

_KINDS: Final = ("vector", "fts", "hybrid", "auto")
_VECTOR_KINDS: Final = ("IVF_FLAT", "IVF_PQ", "IVF_HNSW_SQ", "IVF_HNSW_PQ")
_SCALAR_KINDS: Final = ("BTREE", "BITMAP", "LABEL_LIST")
_HEAP: Final = 1024 * 1024 * 1024


class TableSearch(ViewRefresh):
    """A Lance table that is searched, beside what its columns are filled by: see :class:`~.table.Table`."""

    def search(
        self,
        query: Any = None,
        vector_column_name: str | None = None,
        query_type: Literal["vector", "fts", "hybrid", "auto"] = "auto",
        ordering_field_name: str | None = None,
        fts_columns: str | list[str] | None = None,
    ) -> TableQuery:
        """A question for rows of the table, which is asked when its answer is wanted; see :class:`~.search.TableQuery`.

        Rows that no index covers are found, too.

        Parameters
        ----------
        query
            None: all rows, in the table's order. Numbers, in a list or an array: the rows whose vectors are nearest,
            with ``_distance``. Text: the rows that have words of it, with ``_score``.
        vector_column_name
            The column of vectors; by default the only one.
        query_type
            ``vector`` or ``fts`` for what ``query`` is to be. ``hybrid`` is both: ``query`` is one of them, and
            ``.vector(…)`` or ``.text(…)`` of the result gives the other; rows are ranked by both, and have
            ``_relevance_score``.
        ordering_field_name
            Is of another engine, and refused.
        fts_columns
            The columns in which words are looked for; by default those with an index of words.

        Raises
        ------
        ValueError
            There is no such column, ``query`` is no vector of its length, or does not go with ``query_type``.
        """
        if query_type not in _KINDS:
            raise UsageError(f"query_type is one of {', '.join(_KINDS)}, not {query_type!r}")
        if ordering_field_name is not None:
            raise UnsupportedCallError(f"ordering_field_name={ordering_field_name!r} is of another engine")
        is_text = isinstance(query, str)
        kind: str = query_type
        if kind == "auto":
            kind = "fts" if is_text else "vector"
            if query is None:
                return TableQuery(self._lance)
        if query is None and kind != "hybrid":
            raise UsageError(f"query_type={query_type!r} needs a query")
        if query is not None and kind in ("vector", "fts") and is_text != (kind == "fts"):
            raise UsageError(
                f"a query of query_type={kind!r} is {'text' if kind == 'fts' else 'a vector'}, not {query!r}"
            )
        near = words = None
        if kind != "fts" and (query is None or not is_text or vector_column_name is not None):
            schema = self._lance.newest().schema
            column = vector_column(schema, vector_column_name)
        if kind != "fts" and not is_text:
            near = None if query is None else NearRows(column, vector_of(query, column, schema.field(column).type))
        if kind != "vector":
            columns = word_columns(self._lance.newest().schema, fts_columns) if fts_columns else ()
            words = RowsWithWords(query if isinstance(query, str) else "", columns) if is_text or columns else None
        return TableQuery(
            self._lance, near=near, words=words, is_hybrid=kind == "hybrid", vector_name=vector_column_name
        )

    def create_index(
        self,
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
        """Index the vectors of a column, for :meth:`search`; by default as suits few rows and short vectors, too.

        Rows that are added later are found without it, and taken in by :meth:`optimize`.

        Parameters
        ----------
        metric
            ``L2``, ``cosine``, ``dot``; ``hamming`` for vectors of bytes, with IVF_FLAT.
        num_partitions
            In how many parts vectors lie; by default as many as Lance finds right for the number of rows.
        num_sub_vectors
            Of PQ: in how many bytes a vector is compressed, a divisor of its length; by default a sixteenth, an eighth
            or one.
        replace
            Whether an index that there is gives way; else it is an error.
        accelerator
            What trains, ``cuda`` or ``mps``, which needs torch.
        index_cache_size
            Is nothing of an index any more, and refused.
        num_bits
            Of PQ: 8, or 4.
        max_iterations, sample_rate
            Of the training: rounds, and vectors for each partition.
        m, ef_construction
            Of HNSW: edges of a node, and candidates for them.

        Raises
        ------
        ValueError
            An argument does not fit the column or another argument. The message names it.
        """
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
        schema = self._lance.newest().schema
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
        make_index(self._lance, vector_column_name, index_type, options)

    def create_fts_index(
        self,
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
        """Index the words of columns of texts, or of lists of texts, for :meth:`search`: one index for each.

        Parameters
        ----------
        field_names
            The columns.
        replace
            Whether an index that there is gives way; else it is an error.
        with_position
            Whether places of words are kept, which phrases need.
        base_tokenizer
            How texts become words: ``simple`` at whatever is no letter or digit, ``whitespace`` at white space alone,
            ``raw`` not at all.
        language, stem, remove_stop_words
            Whether words are cut to their stems, and the most frequent left out, of which language.
        max_token_length
            The longest words that count; None: all.
        lower_case, ascii_folding
            Whether words are the same whatever their case, and their accents.
        ordering_field_names, writer_heap_size, tokenizer_name
            Are of another engine: refused, unless they are what they are by default.

        Raises
        ------
        ValueError
            An argument does not fit a column. The message names it.
        """
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
        names = word_columns(self._lance.newest().schema, field_names)
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
            make_index(self._lance, name, "INVERTED", options)

    def create_scalar_index(
        self, column: str, *, replace: bool = True, index_type: Literal["BTREE", "BITMAP", "LABEL_LIST"] = "BTREE"
    ) -> None:
        """Index the values of a column, for conditions: BTREE, BITMAP for few different ones, LABEL_LIST for lists.

        Raises
        ------
        ValueError
            An argument does not fit the column, or the index exists and ``replace`` is false.
        """
        if index_type not in _SCALAR_KINDS:
            raise UsageError(f"index_type is one of {', '.join(_SCALAR_KINDS)}, not {index_type!r}")
        word_columns(self._lance.newest().schema, column)
        make_index(self._lance, column, index_type, {"replace": replace})
