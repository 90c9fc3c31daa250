"""Computed columns: Python functions whose results are columns of Lance tables.

The names below are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .checking import check_against
    from .connection import AsyncTableConnection, TableConnection, connect, connect_async
    from .definitions import Definition, group_metadata, metadata_of, remember, resolve
    from .functions import UDF, UnpackedUDF, udf
    from .jobs import BackfillJobResult, ErrorRecord, Job, JobFuture, JobMetric, JobRecord, JobTable, UdfResult
    from .planning import BackfillPlan
    from .policies import (
        Fail,
        Policy,
        Retry,
        RowFailure,
        Skip,
        check_skipped,
        fail_fast,
        guarded_compute,
        policy_for,
        retry_all,
        retry_transient,
        skip_on_error,
    )
    from .ranking import vector_of
    from .reference import TableReference
    from .search import TableQuery
    from .signatures import Columns, FunctionKind
    from .table import NativeTable, Table
    from .upkeep import CleanupStats, cleaned, joined
    from .view_refresh import RefreshJobResult, RefreshPlan

_HOMES = {
    ".jobs": "BackfillJobResult ErrorRecord Job JobFuture JobMetric JobRecord JobTable UdfResult",
    ".planning": "BackfillPlan",
    ".connection": "AsyncTableConnection TableConnection connect connect_async",
    ".table": "NativeTable Table",
    ".upkeep": "CleanupStats cleaned joined",
    ".view_refresh": "RefreshJobResult RefreshPlan",
    ".checking": "check_against",
    ".definitions": "Definition group_metadata metadata_of remember resolve",
    ".functions": "UDF UnpackedUDF udf",
    ".policies": (
        "Fail Policy Retry RowFailure Skip check_skipped fail_fast guarded_compute policy_for retry_all "
        "retry_transient skip_on_error"
    ),
    ".ranking": "vector_of",
    ".reference": "TableReference",
    ".search": "TableQuery",
    ".signatures": "Columns FunctionKind",
}

__all__ = [
    "AsyncTableConnection",
    "BackfillJobResult",
    "BackfillPlan",
    "CleanupStats",
    "Columns",
    "Definition",
    "ErrorRecord",
    "Fail",
    "FunctionKind",
    "Job",
    "JobFuture",
    "JobMetric",
    "JobRecord",
    "JobTable",
    "NativeTable",
    "Policy",
    "RefreshJobResult",
    "RefreshPlan",
    "Retry",
    "RowFailure",
    "Skip",
    "Table",
    "TableConnection",
    "TableQuery",
    "TableReference",
    "UDF",
    "UdfResult",
    "UnpackedUDF",
    "check_against",
    "check_skipped",
    "cleaned",
    "connect",
    "connect_async",
    "fail_fast",
    "group_metadata",
    "guarded_compute",
    "joined",
    "metadata_of",
    "policy_for",
    "remember",
    "resolve",
    "retry_all",
    "retry_transient",
    "skip_on_error",
    "udf",
    "vector_of",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
