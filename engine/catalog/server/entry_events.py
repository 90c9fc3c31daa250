"""Entries that come and go, told to all who watch: the catalog is looked at once for all of them."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

from ...errors import ChunkmillError
from ..client import CatalogClient
from ..entries import EntryId
from .messages import cloud, entry_id_message
from .methods import Call, Kind, Method, ProtocolError, Status

MOST_WATCHERS: Final = 256
"""Clients that watch at once; each has a thread, which sleeps."""
_LOG: Final = logging.getLogger(__name__)
_LOOK_SECONDS: Final = 0.5
"""How often it is looked whether entries came or went, by whatever process."""
_GONE_SECONDS: Final = 1.0
"""How long it takes to notice that a client has gone."""

_Events = queue.SimpleQueue[tuple[str, EntryId]]


class EntryEvents:
    """The call that watches a catalog: a thread looks at it while anybody does."""

    def __init__(self, catalog: CatalogClient) -> None:
        self._catalog = catalog
        self._watchers: set[_Events] = set()
        self._known: set[EntryId] = set()
        self._is_looking = False
        self._lock = threading.Lock()

    def methods(self) -> tuple[Method, ...]:
        """The method of this group."""
        return (Method.named("WatchEvents", Kind.STREAM, self._watch, waits=True),)

    def _watch(self, request: Any, call: Call) -> Iterator[Any]:
        """Tell of entries that come and go until the client has gone; it is of no account which kinds it asks for.

        There is one kind, and a request that names none asks for all.
        """
        if request.kinds and not any(kind.WhichOneof("kind") == "entry" for kind in request.kinds):
            raise ProtocolError(Status.INVALID_ARGUMENT, "watch_events: events of entries are those that are told")
        events = self._joined()
        try:
            while not call.cancelled():
                try:
                    event, id_ = events.get(timeout=_GONE_SECONDS)
                except queue.Empty:
                    continue
                yield cloud("WatchEventsResponse")(**{event: {"id": entry_id_message(id_)}})
        finally:
            with self._lock:
                self._watchers.discard(events)

    def _joined(self) -> _Events:
        """The events of one more watcher, from now on."""
        events = _Events()
        with self._lock:
            if len(self._watchers) >= MOST_WATCHERS:
                raise ProtocolError(Status.RESOURCE_EXHAUSTED, f"{MOST_WATCHERS} clients watch already")
            if not self._is_looking:
                self._known = self._entries()
                threading.Thread(target=self._look, name="chunkmill-serve-events", daemon=True).start()
                self._is_looking = True
            self._watchers.add(events)
        return events

    def _look(self) -> None:
        """Look at the catalog now and then, and tell what is new, until nobody watches any more."""
        while True:
            time.sleep(_LOOK_SECONDS)
            with self._lock:
                self._is_looking = bool(self._watchers)
                if not self._is_looking:
                    return
            try:
                now = self._entries()
            except (ChunkmillError, OSError) as error:  # the next look tells what this one missed
                _LOG.warning("who watches for entries is not told of any: %s", error)
                continue
            events = [("entry_created", id_) for id_ in sorted(now - self._known, key=str)]
            events += [("entry_deleted", id_) for id_ in sorted(self._known - now, key=str)]
            with self._lock:
                self._known = now
                for watcher in self._watchers:
                    for event in events:
                        watcher.put(event)

    def _entries(self) -> set[EntryId]:
        return {entry.id for entry in self._catalog.entries()}
