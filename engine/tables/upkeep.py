"""Upkeep of what belongs to computed columns: checkpoints that are of no use any more."""

from __future__ import annotations

from typing import Final

from ..execution import Staging
from ..lance import ComputedTable
from ..locations import located
from .checkpoints import COMPUTED, CheckpointStore
from .definitions import Definition
from .jobs import JobTable
from .planning import state_of_files

STAGED: Final = ("run", "source")
"""What runs stage files for, in the table's folder."""


def cleaned_checkpoints(table: ComputedTable, jobs: JobTable) -> dict[str, int]:
    """Remove checkpoints that no run would use, and give how many: of rows, and of whole fragments.

    Folders go that runs have left which are dead, too.

    While a job runs nothing is removed: it may read an older version. The files of fragments that nothing names go with
    old versions, a week later.
    """
    counts = {"batch_deleted": 0, "orphan_frag_deleted": 0, "udtf_batch_deleted": 0}
    store = CheckpointStore(table.place)
    for name in STAGED:
        Staging.sweep(located(table.place) / COMPUTED / name)
    if jobs.any_runs():
        return counts
    jobs.sweep()
    keys = store.keys()
    if not keys:
        return counts
    reader = table.at()
    groups = {
        (definition.columns_in(reader.schema), definition.inputs_of(reader.schema))
        for field in reader.schema
        if (definition := Definition.of(field)) is not None
    }
    useful = {state_of_files(*group, fragment) for group in groups for fragment in reader.fragments}
    for key in keys:
        if key.rpartition("-")[0] in useful:
            continue
        checkpoints = store.of(key)
        counts["batch_deleted"] += len(checkpoints.spans())
        counts["orphan_frag_deleted"] += any(True for _ in checkpoints.files())
        checkpoints.remove()
    return counts
