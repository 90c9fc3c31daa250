"""Pipelines as files: a Python function that takes the stream of a recording and returns the stream to write."""

from .pipeline import Pipeline, load_file, load_pipeline

__all__ = ["Pipeline", "load_file", "load_pipeline"]
