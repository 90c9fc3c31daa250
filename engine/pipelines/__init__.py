"""Pipelines as files: a Python function that takes the stream of a recording and gives the stream to write."""

from .loading import load_pipeline
from .pipeline import Pipeline

__all__ = ["Pipeline", "load_pipeline"]
