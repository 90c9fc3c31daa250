"""Imports point down, never in a circle, and heavy libraries stay where they belong."""

from __future__ import annotations

from collections.abc import Iterator, Set
from graphlib import CycleError, TopologicalSorter

import pytest
from source_tree import (
    PACKAGE,
    SOURCE_FOLDERS,
    annotation_lines,
    foreign_imports,
    imports_in_strings,
    module_name,
    modules,
    own_imports,
    python_files,
)

FOUNDATION = (
    "engine.allocation",
    "engine.errors",
    "engine.limits",
    "engine.faults",
    "engine.folders",
    "engine.lazy_names",
    "engine.locations",
    "engine.markup",
    "engine.objects",
    "engine.storage",
    "engine.task_context",
    "engine.units",
)

# What each part may know, besides itself and the foundation.
CORE = (
    "engine.chunk",
    "engine.rrd",
    "engine.reports",
    "engine.spark",
    "engine.lance",
    "engine.execution",
    "engine.stream",
    "engine.optimisation",
    "engine.recordings",
    "engine.query",
    "engine.frames",
    "engine.store",
)
MAY_IMPORT = {
    "engine.chunk": (),
    "engine.rrd": ("engine.chunk",),
    "engine.reports": (),
    "engine.spark": (),
    "engine.lance": ("engine.rrd",),
    "engine.execution": ("engine.chunk", "engine.rrd", "engine.reports", "engine.spark", "engine.lance"),
    "engine.tables": (
        "engine.rrd",
        "engine.chunk",
        "engine.reports",
        "engine.spark",
        "engine.lance",
        "engine.execution",
    ),
    "engine.stream": ("engine.chunk", "engine.rrd", "engine.reports", "engine.spark", "engine.execution"),
    "engine.optimisation": ("engine.chunk", "engine.rrd", "engine.execution"),
    "engine.recordings": ("engine.chunk", "engine.rrd", "engine.execution", "engine.optimisation"),
    "engine.query": ("engine.chunk", "engine.rrd", "engine.stream", "engine.optimisation", "engine.recordings"),
    "engine.frames": (
        "engine.chunk",
        "engine.rrd",
        "engine.spark",
        "engine.execution",
        "engine.stream",
        "engine.optimisation",
        "engine.recordings",
        "engine.query",
    ),
    "engine.store": CORE,
    "engine.viewer": CORE,
    "engine.pipelines": ("engine.execution", "engine.stream"),
    "lenses": ("engine.chunk", "engine.stream"),
    "readers": (*CORE, "lenses"),
    "engine.inputs": (*CORE, "engine.pipelines", "lenses", "readers"),
    "engine.ingest": (*CORE, "engine.pipelines", "engine.inputs", "lenses", "readers"),
    "engine.data_sources": (
        *CORE,
        "engine.pipelines",
        "engine.inputs",
        "engine.ingest",
        "engine.catalog",
        "lenses",
        "readers",
    ),
    "engine.catalog": (*CORE, "engine.tables", "engine.inputs", "readers"),
    "engine.cli": (
        *CORE,
        "engine.pipelines",
        "engine.data_sources",
        "engine.inputs",
        "engine.ingest",
        "engine.tables",
        "engine.catalog",
        "lenses",
        "readers",
    ),
    PACKAGE: ("engine", "lenses", "readers"),
}

# Methods whose types live above them: what they name for the type checker, and never import.
ANNOTATED_FROM_ABOVE = (
    "engine.chunk.chunk",
    "engine.stream.lazy_stream",
    "engine.catalog.entries",
    "engine.catalog.hidden_datasets",
    "engine.catalog.deprecated",
    "engine.catalog.dataset_view",
    "engine.catalog.table_entry",
    "engine.catalog.v0_27.entries",
)

# Names in strings that point up, as of today: methods of streams that live above them, and what workers import early.
NAMED_FROM_BELOW = {
    "engine.spark.worker_daemon": ("engine.execution", "engine.stream", "engine.rrd", "readers", "lenses"),
    "engine.stream.source": ("engine.data_sources", "engine.store", "lenses"),
}

# Where a library may be imported at all.
HOME_OF_LIBRARY = {
    "pyspark": ("engine.spark", "engine.execution", "engine.frames", "engine.data_sources", "engine.ingest"),
    "py4j": ("engine.spark", "engine.execution", "engine.ingest"),
    "prometheus_client": ("engine.catalog.server", "engine.ingest"),
    "uvicorn": ("engine.catalog.server",),
    "click": ("engine.cli",),
    "datafusion": ("engine.frames", "engine.store", "engine.catalog", "engine.cli"),
    "grpc": ("engine.catalog.server", "engine.spark"),
    "lance": ("engine.lance",),
    "rich": ("engine.cli", "engine.chunk", "engine.execution"),
    "rerun": ("engine.viewer",),
    "obstore": ("engine.objects",),
    "boto3": ("engine.objects",),
    "botocore": ("engine.objects",),
    "wcmatch": ("engine.objects",),
    "zlib": (),  # zlib-ng has CRC-32 at 9.6 GB/s instead of 1.9
}


def part_of(module: str) -> str:
    return next((part for part in (*MAY_IMPORT, *FOUNDATION) if is_within(module, part)), module)


def imports(module: str) -> Set[str]:
    return own_imports(module, annotation_lines(module) if module in ANNOTATED_FROM_ABOVE else frozenset())


def is_within(module: str, part: str) -> bool:
    return module == part or module.startswith(part + ".")


def imports_from_above(name: str) -> list[str]:
    part = part_of(name)
    allowed = (part, *FOUNDATION, *MAY_IMPORT.get(part, ()))
    named = {t for t in imports_in_strings(name) if not any(is_within(t, up) for up in NAMED_FROM_BELOW.get(name, ()))}
    return sorted(target for target in imports(name) | named if not any(is_within(target, a) for a in allowed))


def test_imports_point_down() -> None:
    assert {name: above for name in sorted(modules()) if (above := imports_from_above(name))} == {}


def test_every_part_has_its_place() -> None:
    known = {*MAY_IMPORT, *FOUNDATION, "engine"}
    assert {part_of(name) for name in modules()} <= known


def test_no_circle_between_modules() -> None:
    graph = {name: imports(name) - {name} for name in modules()}
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"modules import each other: {' -> '.join(error.args[1])}")


def libraries() -> Iterator[tuple[str, str]]:
    """Every module with each library that it imports."""
    for path in python_files(*SOURCE_FOLDERS):
        for library in sorted({name.partition(".")[0] for name in foreign_imports(path)}):
            yield module_name(path), library


def test_libraries_stay_home() -> None:
    assert [
        f"{module} imports {library}, which belongs to {HOME_OF_LIBRARY[library] or 'tests'}"
        for module, library in libraries()
        if library in HOME_OF_LIBRARY and not any(is_within(module, home) for home in HOME_OF_LIBRARY[library])
    ] == []


def test_own_modules_are_imported_relatively() -> None:
    assert [pair for pair in libraries() if pair[1] in {"chunkmill", *SOURCE_FOLDERS}] == []
