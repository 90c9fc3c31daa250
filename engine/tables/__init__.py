"""Computed columns: Python functions whose results are columns of Lance tables.

The names below are loaded when they are first used.
"""

from ..lazy_names import lazy_names

_HOMES = {
    ".curation": "Sampler TableCuration",
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
    ".view": "ViewDefinition",
    ".targets": "Definition group_metadata metadata_of remember resolve",
    ".upkeep": "CleanupStats cleaned joined purged",
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
