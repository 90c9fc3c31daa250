"""Queries of a place, without a client: of a dataset of a catalog, or of a store of recordings."""

from __future__ import annotations

import difflib
import fnmatch
import shlex
from collections.abc import Sequence

from ..errors import NotFoundError, UsageError
from ..locations import Location
from ..query import AnswerColumns, QueriedSegment, Query
from ..recordings import is_catalog
from ..store import RecordingStore
from ..units import counted
from .client import CatalogClient
from .dataset import DatasetEntry

Queried = tuple[AnswerColumns, list[QueriedSegment]]
"""The columns of an answer, and the segments that it is made of."""


def queried_at(place: Location, dataset: str | None, query: Query, segments: Sequence[str] = ()) -> Queried:
    """The segments of a dataset of a catalog, or of a store, as a query sees them in the newest version.

    ``dataset`` is the one of a catalog, which may be left out where there is only one; ``segments`` are ids, or
    patterns such as ``drive-*``; none means all. Raises ``UsageError`` where a dataset is missing or too many,
    ``NotFoundError`` for a dataset or a segment that is not there, and as :meth:`DatasetView.reader` does.
    """
    if is_catalog(place):
        entry = one_dataset(CatalogClient(str(place)), dataset)
        view = entry.filter_contents(query.contents)
        if segments:
            view = view.filter_segments(chosen_segments(segments, entry.segment_ids()))
        return view.queried(query)
    if dataset is not None:
        raise UsageError(
            f"dataset {dataset!r} was named, and this is not a catalog", path=str(place), hint="Leave it out."
        )
    store = RecordingStore.open(place)
    ids = list(dict.fromkeys(entry.recording_id for entry in store)) if segments else None
    return store.queried(query, None if ids is None else chosen_segments(segments, ids))


def chosen_segments(words: Sequence[str], there: Sequence[str]) -> list[str]:
    """The ids that words mean: ids, or patterns of them. Raises ``NotFoundError`` for a word that means none."""
    known, chosen = set(there), dict[str, None]()
    for word in words:
        matching = [word] if word in known else fnmatch.filter(there, word)
        if not matching:
            close = difflib.get_close_matches(word, there, 1)
            raise NotFoundError(
                f"there is no segment {word!r}",
                hint=f"Did you mean {close[0]!r}?" if close else f"There are {counted(len(known), 'segment')}.",
            )
        chosen.update(dict.fromkeys(matching))
    return list(chosen)


def one_dataset(client: CatalogClient, name: str | None) -> DatasetEntry:
    """The dataset of a name, or the only one. Raises ``UsageError`` where several could be meant."""
    if name is not None:
        return client.get_dataset(name)
    datasets = client.datasets()
    if len(datasets) != 1:
        raise UsageError(
            f"the catalog holds {counted(len(datasets), 'dataset')}, and none was given",
            path=client.url,
            hint=f"Give one: `chunkmill catalog ls {shlex.quote(client.url)}` lists them.",
        )
    return datasets[0]
