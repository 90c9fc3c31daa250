"""Calls about properties of segments, which are stored separately from recordings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ...errors import UsageError
from ...storage import publish
from ..segments import SegmentProperties, StoredProperties
from .lake import Lake
from .protocol import Call, Kind, Need, ProtocolError, Status, answers, cloud, invalid, part_of, rows_in, shared


@answers("GetSegmentProperties", Kind.STREAM, need=Need.READ)
def _get_segment_properties(lake: Lake, request: Any, call: Call) -> Iterator[Any]:
    """The properties of each segment that has some, in separate messages, as they may be large."""
    properties = SegmentProperties(lake.dataset(call))
    if not request.segment_ids:
        raise UsageError("segment_ids must name at least one segment")
    for id_ in dict.fromkeys(segment.id for segment in request.segment_ids):
        call.check()
        stored = properties.of(id_)
        if stored.row is not None:
            message = {
                "segment_id": shared("SegmentId")(id=id_),
                "properties": part_of(stored.row),
                "revision": stored.revision,
            }
            yield cloud("GetSegmentPropertiesResponse")(segments=[message])


@answers("SetSegmentProperties", need=Need.WRITE)
def _set_segment_properties(lake: Lake, request: Any, call: Call) -> Any:
    """Replace a segment's properties if they have the expected revision, or always if none is expected."""
    properties = SegmentProperties(lake.dataset(call))
    rows = rows_in(request.properties, call).combine_chunks().to_batches()
    row = rows[0] if rows else pa.record_batch({})
    expected = request.expected_revision if request.HasField("expected_revision") else None
    id_ = _id_in(request)

    def attempt() -> StoredProperties | None:
        stored = properties.of(id_)
        _check(id_, stored, expected)
        return properties.replace(id_, stored, row)

    revision = publish(attempt, f"the properties of segment '{id_}'").revision
    call.record.changed.update(segment=id_, revision=revision)
    return cloud("SetSegmentPropertiesResponse")(revision=revision)


@answers("DeleteSegmentProperties", need=Need.WRITE)
def _delete_segment_properties(lake: Lake, request: Any, call: Call) -> Any:
    """Delete the properties of segments, or none of them if one has an unexpected revision."""
    properties = SegmentProperties(lake.dataset(call))
    wanted = {
        _id_in(given): given.expected_revision if given.HasField("expected_revision") else None
        for given in request.segments
    }
    if not wanted:
        raise UsageError("segments must name at least one segment")

    def attempt() -> bool | None:
        stored = {id_: properties.of(id_) for id_ in wanted}
        for id_, expected in wanted.items():
            _check(id_, stored[id_], expected)
        return properties.delete_all(stored) or None

    publish(attempt, f"the properties of segment '{next(iter(wanted))}'")
    call.record.changed.update(deleted_properties=list(wanted))
    return cloud("DeleteSegmentPropertiesResponse")()


def _check(id_: str, stored: StoredProperties, expected: int | None) -> None:
    if expected is not None and stored.revision != expected:
        raise ProtocolError(
            Status.FAILED_PRECONDITION,
            f"Properties of segment '{id_}' were modified concurrently: "
            f"expected revision {expected}, found {stored.revision}",
        )


def _id_in(given: Any) -> str:
    if not given.segment_id.id:
        raise invalid("missing required field: 'segment_id'")
    id_: str = given.segment_id.id
    return id_
