"""The selector language: queries, their evaluation on Arrow arrays, jq programs."""

from .selector import UNITS, Selector, pipeline_of, unit_factor

__all__ = ["Selector", "UNITS", "pipeline_of", "unit_factor"]
