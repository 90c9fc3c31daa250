"""A package is used by its face: what others need of it is named in its ``__init__``, and nobody imports past that."""

from __future__ import annotations

from source_tree import REPOSITORY, modules, own_imports

# Packages that are used by their faces alone. Grows until it is all of them.
FACES = (
    "engine.catalog",
    "engine.catalog.server",
    "engine.catalog.v0_27",
    "engine.chunk",
    "engine.cli",
    "engine.data_sources",
    "engine.execution",
    "engine.frames",
    "engine.ingest",
    "engine.inputs",
    "engine.lance",
    "engine.objects",
    "engine.optimisation",
    "engine.pipelines",
    "engine.recordings",
    "engine.reports",
    "engine.rrd",
    "engine.spark",
    "engine.storage",
    "engine.store",
    "engine.stream",
    "engine.tables",
    "engine.viewer",
    "lenses",
    "lenses.foxglove",
    "lenses.ros2",
    "lenses.selector",
    "readers",
    "readers.lerobot",
    "readers.parquet",
)


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def is_own_package(module: str, package: str) -> bool:
    """Whether a module lies in a package that itself lies in ``package``, and has a face of its own."""
    return module != package and is_within(module, package) and modules()[module].name == "__init__.py"


def test_nobody_imports_past_a_face() -> None:
    imports = {name: own_imports(name) for name in modules()}
    assert [
        f"{name} imports {target}: name it in the __init__ of {package}"
        for package in FACES
        for name, targets in imports.items()
        if not is_within(name, package)
        for target in targets
        if target.startswith(f"{package}.") and not is_own_package(target, package)
    ] == []


def test_every_package_is_in_the_architecture_page() -> None:
    page = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    packages = [name.replace(".", "/") for name, path in modules().items() if path.name == "__init__.py"]
    assert not [package for package in packages if package not in page]
