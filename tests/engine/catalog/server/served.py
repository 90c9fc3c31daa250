"""A lake of three recordings, and calls of its service without any transport between."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from chunk_making import made
from chunkmill.engine import LazyChunkStream
from chunkmill.engine.catalog import CatalogClient, DatasetEntry
from chunkmill.engine.catalog.server import Call, CatalogService, Kind, ServiceOptions
from chunkmill.engine.catalog.server.protocol import SERVICE

SEGMENTS = ("one", "three", "two")


def small_lake(folder: Path) -> CatalogClient:
    """A catalog with the dataset ``drives``, of three recordings that lie where they were."""
    catalog = CatalogClient(folder / "lake")
    dataset = catalog.create_dataset("drives")
    dataset.register([recording(folder, name) for name in SEGMENTS], executor="inline").wait()
    return catalog


def recording(folder: Path, name: str) -> Path:
    """An RRD of one chunk with three rows."""
    path = folder / "files" / f"{name}.rrd"
    path.parent.mkdir(exist_ok=True)
    LazyChunkStream.from_iter([made(range(3))]).write_rrd(path, application_id="tests", recording_id=name)
    return path


class Caller:
    """Calls of a service, about one dataset unless told otherwise."""

    def __init__(self, catalog: CatalogClient, dataset: DatasetEntry | None = None, **headers: str) -> None:
        self.service = CatalogService(catalog, ServiceOptions(readable=None))
        self.headers: dict[str, str | bytes] = dict(headers)
        if dataset is not None:
            self.headers["x-rerun-entry-id"] = str(dataset.id)

    def __call__(self, name: str, /, **fields: Any) -> Any:
        """The response to a request with these fields; of a stream, a list of them, after a way over the wire."""
        method = self.service.methods[f"/{SERVICE}/{name}"]
        request = method.request.FromString(method.request(**fields).SerializeToString())
        given: Any = iter([request]) if method.kind is Kind.UPLOAD else request
        found = method.handler(given, Call(self.headers))
        if method.kind is Kind.STREAM:
            return [_over_the_wire(method.response, one) for one in found]
        return _over_the_wire(method.response, found)

    def upload(self, name: str, requests: Iterable[dict[str, Any]]) -> Any:
        """The response to several requests."""
        method = self.service.methods[f"/{SERVICE}/{name}"]
        return method.handler((method.request(**fields) for fields in requests), Call(self.headers))


def _over_the_wire(kind: Any, message: Any) -> Any:
    return kind.FromString(message.SerializeToString())
