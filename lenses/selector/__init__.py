"""The selector language: queries, their evaluation on Arrow arrays, jq programs."""

from .evaluation import SelectorResults, SelectorTable, beside, cast, execute_per_row, missing_field, nanoseconds
from .selector import UNITS, Selector, datatype_of, pipeline_of, scalars, unit_factor, vector
from .syntax import Each, FieldAccess, Identity, Index, SelectorPipeline, pipeline_text

__all__ = [
    "Each",
    "FieldAccess",
    "Identity",
    "Index",
    "Selector",
    "SelectorPipeline",
    "SelectorResults",
    "SelectorTable",
    "UNITS",
    "beside",
    "cast",
    "datatype_of",
    "execute_per_row",
    "missing_field",
    "nanoseconds",
    "pipeline_of",
    "pipeline_text",
    "scalars",
    "unit_factor",
    "vector",
]
