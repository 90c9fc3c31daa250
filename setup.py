"""Finds the packages: pyproject.toml can find them by itself only under the names that their folders have."""

from pathlib import Path

from setuptools import find_packages, setup

PARTS = find_packages(include=("engine*", "readers*", "lenses*"), exclude=("engine.package",))

setup(
    packages=["chunkmill", *(f"chunkmill.{name}" for name in PARTS)],
    py_modules=sorted(path.stem for path in Path("spark_names").glob("*.py")),
)
