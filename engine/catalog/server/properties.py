"""Calls about properties of segments that are kept beside their recordings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from ...errors import UsageError, WriteError
from ..segment_properties import SegmentProperties, StoredProperties
from .lake import Lake
from .protocol import Call, Kind, ProtocolError, Status, answers, cloud, invalid, part_of, rows_in, shared

_MOST_TRIES: Final = 100


@answers("GetSegmentProperties", Kind.STREAM)
def _get_segment_properties(lake: Lake, request: Any, call: Call) -> Iterator[Any]:
    """The properties of each segment that has some: a message for each, as they may be large."""
    properties = SegmentProperties(lake.dataset(call))
    if not request.segment_ids:
        raise UsageError("segment_ids must name at least one segment")
    for id_ in dict.fromkeys(segment.id for segment in request.segment_ids):
        call.check()
        known = properties.of(id_)
        if known.row is not None:
            told = {
                "segment_id": shared("SegmentId")(id=id_),
                "properties": part_of(known.row),
                "revision": known.revision,
            }
            yield cloud("GetSegmentPropertiesResponse")(segments=[told])


@answers("SetSegmentProperties", writes=True)
def _set_segment_properties(lake: Lake, request: Any, call: Call) -> Any:
    properties = SegmentProperties(lake.dataset(call))
    row = rows_in(request.properties, call).combine_chunks().to_batches()
    expected = request.expected_revision if request.HasField("expected_revision") else None
    stored = _replaced(properties, _id_in(request), expected, row[0] if row else pa.record_batch({}))
    return cloud("SetSegmentPropertiesResponse")(revision=stored.revision)


@answers("DeleteSegmentProperties", writes=True)
def _delete_segment_properties(lake: Lake, request: Any, call: Call) -> Any:
    """Delete the properties of segments, none of them where one is not as it is said to be."""
    properties = SegmentProperties(lake.dataset(call))
    wanted = {
        _id_in(given): given.expected_revision if given.HasField("expected_revision") else None
        for given in request.segments
    }
    if not wanted:
        raise UsageError("segments must name at least one segment")
    for _ in range(_MOST_TRIES):
        known = {id_: properties.of(id_) for id_ in wanted}
        for id_, expected in wanted.items():
            _check(id_, known[id_], expected)
        if properties.delete_all(known):
            return cloud("DeleteSegmentPropertiesResponse")()
    raise _never_still(next(iter(wanted)))


def _replaced(properties: SegmentProperties, id_: str, expected: int | None, row: pa.RecordBatch) -> StoredProperties:
    """Give a segment other properties, if those that it has are the expected ones, or whatever they are."""
    for _ in range(_MOST_TRIES):
        known = properties.of(id_)
        _check(id_, known, expected)
        stored = properties.replace(id_, known, row)
        if stored is not None:
            return stored
    raise _never_still(id_)


def _never_still(id_: str) -> WriteError:
    return WriteError(
        f"others change the properties of segment '{id_}' all the time", hint="Try again.", transient=True
    )


def _check(id_: str, known: StoredProperties, expected: int | None) -> None:
    if expected is not None and known.revision != expected:
        raise ProtocolError(
            Status.FAILED_PRECONDITION,
            f"Properties of segment '{id_}' were modified concurrently: "
            f"expected revision {expected}, found {known.revision}",
        )


def _id_in(given: Any) -> str:
    if not given.segment_id.id:
        raise invalid("missing required field: 'segment_id'")
    id_: str = given.segment_id.id
    return id_
