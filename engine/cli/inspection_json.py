"""The report of ``inspect`` as JSON. Its keys are an interface: they are added to, not renamed."""

from __future__ import annotations

import json
from typing import Any

from ...readers.inspection import EntityReport, FileReport, StoreReport


def to_json(report: FileReport) -> str:
    """The report as JSON text. Times are in nanoseconds, or numbers of a sequence; null means not known."""
    return json.dumps(
        {
            "path": report.path,
            "format": report.format,
            "bytes": report.num_bytes,
            **report.facts,
            **_table(report),
            "recordings": [_store(s) for s in report.stores if s.kind == "recording"],
            "blueprints": [_store(s) for s in report.stores if s.kind == "blueprint"],
        },
        indent=2,
        ensure_ascii=False,
    )


def _table(report: FileReport) -> dict[str, Any]:
    """What only tables have."""
    if not report.columns:
        return {}
    columns = [
        {
            "name": c.name,
            "type": c.type,
            "nullable": c.nullable,
            "values": c.values,
            "bytes": c.num_bytes,
            "uncompressed_bytes": c.uncompressed_bytes,
            "encodings": list(c.encodings),
            "compression": list(c.compression),
            "index_candidate": c.is_index,
        }
        for c in report.columns
    ]
    return {"columns": columns, "key_values": report.notes}


def _store(store: StoreReport) -> dict[str, Any]:
    return {
        "application_id": store.application_id,
        "recording_id": store.recording_id,
        "chunks": store.chunks,
        "rows": store.rows,
        "bytes": store.num_bytes,
        "timelines": [{"name": t.name, "type": t.kind.value, "start": t.start, "end": t.end} for t in store.timelines],
        "entities": [_entity(e) for e in store.entities],
    }


def _entity(entity: EntityReport) -> dict[str, Any]:
    given = {
        "path": entity.path,
        "rows": entity.rows,
        "chunks": entity.chunks,
        "bytes": entity.num_bytes,
        "static": entity.is_static,
    }
    if entity.schema is not None or entity.encoding is not None:
        told = {"rate": entity.rate, "largest_gap": entity.largest_gap}
        return given | {"schema": entity.schema, "encoding": entity.encoding} | told
    return given | {"timelines": list(entity.timelines), "components": list(entity.components)}
