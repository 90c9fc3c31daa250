"""Finds the packages: pyproject.toml can find them by itself only under the names that their folders have."""

from setuptools import find_packages, setup

setup(packages=[f"chunkmill.{name}" for name in find_packages(include=("engine*", "readers*", "lenses*"))])
