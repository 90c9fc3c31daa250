"""Computed columns: Python functions whose results are columns of Lance tables.

The names below are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .connection import AsyncTableConnection, TableConnection, TableReference, connect, connect_async
    from .function import UDF, UnpackedUDF, check_against, udf
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
    from .refresh import RefreshJobResult, RefreshPlan
    from .search import TableQuery, vector_of
    from .signatures import Columns, FunctionKind
    from .table import NativeTable, Table
    from .targets import Definition, group_metadata, metadata_of, remember, resolve
    from .upkeep import CleanupStats, cleaned, joined

_HOMES = {
    ".connection": "AsyncTableConnection TableConnection TableReference connect connect_async",
    ".function": "UDF UnpackedUDF check_against udf",
    ".jobs": "BackfillJobResult ErrorRecord Job JobFuture JobMetric JobRecord JobTable UdfResult",
    ".planning": "BackfillPlan",
    ".policies": (
        "Fail Policy Retry RowFailure Skip check_skipped fail_fast guarded_compute policy_for retry_all "
        "retry_transient skip_on_error"
    ),
    ".refresh": "RefreshJobResult RefreshPlan",
    ".search": "TableQuery vector_of",
    ".signatures": "Columns FunctionKind",
    ".table": "NativeTable Table",
    ".targets": "Definition group_metadata metadata_of remember resolve",
    ".upkeep": "CleanupStats cleaned joined",
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
