"""Processes append to one table, upsert and update one key, overwrite and compact it, all at once: each is one version.

    python tests/faults/table_writers.py [--processes 8] [--operations 12] [--where FOLDER|s3] [--seed 1] [--kills 0]
    python tests/faults/table_writers.py --without turns          # as if each slept past the end of its turn
    python tests/faults/table_writers.py --without turns,order    # which fails

Each is a process of its own that draws what it does next, and notes what it was told. At the end the versions of the
table are gone through, one by one: each is what exactly one write has made of the one before, or a compaction that
has changed no row; a key has one row in each; every write that was acknowledged is a version, once, none that was
refused is, and those of one process are in its order; an update of a key that is not there leaves no trace. Nobody
may get an error but a transient one of ours. The same is done with keys that may be null, where upserts take turns,
and with keys that may not. ``--without`` leaves out the turns, or the order in which upserts are committed, too: then
the first upsert of each process waits until all have merged theirs. With ``--kills N`` as many processes get a
SIGKILL, and another goes on in the place of each: what a killed one was at is a version, or none. Prints ``N passed,
M failed``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, Final

from chunkmill.engine.catalog import CatalogClient, TableEntry
from chunkmill.engine.errors import ChunkmillError
from chunkmill.engine.lance import table as lance_table
from fault_runs import forked, s3_bucket, waited, warm_up

WEIGHTS: Final = {"append": 6, "upsert": 6, "update": 3, "overwrite": 1, "compact": 2}
ROWS: Final = 3
PATIENCE: Final = 300.0

Rows = dict[str, list[str]]
"""By key, who wrote each row that has it."""


def make(home: str, *, nullable: bool) -> int:
    """Make the table."""
    import pyarrow as pa

    key = pa.field("key", pa.string(), nullable=nullable, metadata={"rerun:is_table_index": "true"})
    CatalogClient(home).create_table("t", pa.schema([key, pa.field("by", pa.string()), ("more", pa.int8())]))
    return 0


def leave_out(what: str, merged: Barrier) -> None:
    """Let upserts take no turns, and the first of each process merge before any is committed, or commit as Lance does.

    That all overlap is not left to the speed of a machine.
    """
    if not what:
        return
    commit = _committed if "order" in what else lance_table._commit_after_all
    waits = [merged]

    def committed(dataset: Any, transaction: Any) -> None:
        if waits:
            waits.pop().wait(PATIENCE)
        commit(dataset, transaction)

    TableEntry._alone = lambda _: contextlib.nullcontext()  # type: ignore[assignment, method-assign, return-value]
    lance_table._commit_after_all = committed


def _committed(dataset: Any, transaction: Any) -> None:
    from lance import LanceDataset

    LanceDataset.commit(dataset, transaction)


def write(home: str, number: int, operations: int, seed: int, start: float) -> Iterator[dict[str, Any]]:
    """Do something, again and again; gives what is about to be done, and then the same with what became of it."""
    import pyarrow as pa

    draw = random.Random(f"{seed}:{number}")
    table = CatalogClient(home).get_table("t")
    time.sleep(max(0.0, start - time.time()))
    for at in range(operations):
        what = "upsert" if at == 0 else draw.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]  # into an empty table
        by = f"{number}-{at}"
        told: dict[str, Any] = {"what": what, "by": by, "done": False}
        yield told
        told["done"] = True
        try:
            if what == "append":
                table.append(key=[f"{by}-{row}" for row in range(ROWS)], by=[by] * ROWS)
            elif what == "upsert":
                table.upsert(key=["one", by], by=[by, by])
            elif what == "update":
                table.update_rows(pa.table({"key": ["one", f"{by}-none"], "by": [by, by]}))
            elif what == "overwrite":
                table.overwrite(more=[0], key=[f"{by}-o"], by=[by])
            else:
                table.do_maintenance(compact_fragments=True)
        except ChunkmillError as error:
            told |= {"error": type(error).__name__, "transient": getattr(error, "transient", False), "text": str(error)}
        yield told


def rows_of(dataset: Any) -> Rows:
    """The rows of a version."""
    found: Rows = {}
    table = dataset.to_table().to_pydict()
    for key, by in zip(table["key"], table["by"], strict=True):
        found.setdefault(key, []).append(by)
    return found


def after(before: Rows, what: str, by: str) -> Rows:
    """What a write makes of rows."""
    if what == "append":
        return before | {f"{by}-{row}": [by] for row in range(ROWS)}
    if what == "upsert":
        return before | {"one": [by], by: [by]}
    if what == "update":
        return before | {"one": [by]}
    return {f"{by}-o": [by]}


def checked(home: str, told: Sequence[Sequence[dict[str, Any]]]) -> list[str]:
    """Go through the versions; what is wrong."""
    wrong = []
    entry = CatalogClient(home).get_table("t")
    opened = entry._table().open
    newest = opened()
    writes = {done["by"]: done for log in told for done in log if done["what"] != "compact"}
    versions: dict[str, int] = {}
    before: Rows = {}
    lacking = False
    for number in range(2, newest.version + 1):
        rows = rows_of(opened(number))
        several = {key: by for key, by in rows.items() if len(by) > 1}
        if several:
            wrong.append(f"version {number} has several rows of a key: {several}")
        new = {by for some in rows.values() for by in some} - {by for some in before.values() for by in some}
        if rows != before:
            by = next(iter(new), "")
            if len(new) != 1 or by not in writes or after(before, writes[by]["what"], by) != rows:
                wrong.append(f"version {number} is none that one write makes: {new}")
            elif by in versions:
                wrong.append(f"{by} was written by versions {versions[by]} and {number}")
            versions[by] = number
        lacking = lacking or "one" not in rows
        before = rows
    for log in told:
        own = own_versions(log, versions, lacking=lacking)
        if None in own or own != sorted(own):  # type: ignore[type-var]
            wrong.append(f"the writes of one process are versions {own}")
        for done in log:
            if "error" in done and (not done["transient"] or done["error"] != "WriteError" or "rust" in done["text"]):
                wrong.append(f"{done['what']} got {done['text']}")
            if "error" in done and done["by"] in versions:
                wrong.append(f"{done['by']} was refused, and is version {versions[done['by']]}")
    entry.do_maintenance(compact_fragments=True)
    if rows_of(opened()) != before or CatalogClient(home).check():
        wrong.append(f"after upkeep it is another: {CatalogClient(home).check()}")
    kinds = Counter(
        f"{done['what']}{' refused' if 'error' in done else ' killed' if not done['done'] else ''}"
        for log in told
        for done in log
    )
    print(f"{newest.version} versions; {dict(sorted(kinds.items()))}")
    return wrong


def own_versions(log: Sequence[dict[str, Any]], versions: dict[str, int], *, lacking: bool) -> list[int | None]:
    """The versions that one process has made; None for a write without one that has to have one."""
    ended = [done for done in log if done["what"] != "compact" and "error" not in done]
    traceless = {done["by"] for done in ended if not done["done"] or (lacking and done["what"] == "update")}
    return [versions.get(done["by"]) for done in ended if done["by"] in versions or done["by"] not in traceless]


def _last(path: Path) -> list[dict[str, Any]]:
    """The last that a process has told of each thing that it did."""
    lines = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
    return list({told["by"]: told for told in lines}.values())


def play(home: str, scratch: Path, options: argparse.Namespace, *, nullable: bool) -> list[str]:
    """Let all of them work; what went wrong."""
    scratch.mkdir()
    if waited(forked(lambda: make(home, nullable=nullable), scratch / "said")):
        return [(scratch / "said").read_text()[-2000:]]
    start = time.time() + 0.5
    merged = multiprocessing.get_context("fork").Barrier(options.processes)

    def worker(number: int) -> int:
        leave_out(options.without, merged)
        with (scratch / f"{number}.jsonl").open("w") as file:
            for told in write(home, number, options.operations, options.seed, start):
                print(json.dumps(told), file=file, flush=True)
        return 0

    def started(number: int) -> int:
        return forked(lambda: worker(number), scratch / "said")

    pids, codes = {number: started(number) for number in range(options.processes)}, []
    draw = random.Random(options.seed)
    for kill in range(options.kills):
        time.sleep(draw.uniform(0.2, 0.6))
        number = draw.choice(list(pids))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pids[number], signal.SIGKILL)
        codes += [code for code in [waited(pids.pop(number), PATIENCE)] if code != -signal.SIGKILL]
        pids[options.processes + kill] = started(options.processes + kill)
    codes += [waited(pid, PATIENCE) for pid in pids.values()]
    if any(codes):
        return [f"a process failed: {(scratch / 'said').read_text()[-3000:]}"]
    told = [_last(scratch / f"{number}.jsonl") for number in range(options.processes + options.kills)]

    def check() -> int:
        wrong = checked(home, told)
        (scratch / "wrong.json").write_text(json.dumps(wrong))
        return 0

    if waited(forked(check, scratch / "checked"), PATIENCE):
        return [f"the check failed: {(scratch / 'checked').read_text()[-3000:]}"]
    print(f"keys that may {'' if nullable else 'not '}be null: {(scratch / 'checked').read_text().strip()}")
    wrong: list[str] = json.loads((scratch / "wrong.json").read_text())
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--operations", type=int, default=12)
    parser.add_argument("--where", help="a new folder, or s3; by default a temporary folder")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--without", default="", choices=("turns", "turns,order"), help="and without kills")
    options = parser.parse_args(arguments)
    if options.without and options.kills:
        parser.error("all have to be there for the first upsert: --without goes without --kills")
    scratch, began = Path(tempfile.mkdtemp(prefix="chunkmill-tables-")), time.monotonic()
    passed, failed = 0, 0
    warm_up()
    try:
        with contextlib.ExitStack() as served:
            home = options.where or str(scratch / "lake")
            if home == "s3":
                home = f"{served.enter_context(s3_bucket(scratch))}/lake"
            for name in ("nullable", "primary"):
                wrong = play(f"{home}-{name}", scratch / name, options, nullable=name == "nullable")
                passed, failed = passed + (not wrong), failed + bool(wrong)
                if wrong:
                    print(f"FAILED {name}\n  " + "\n  ".join(wrong[:10]))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"{passed} passed, {failed} failed; seed {options.seed}, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    os.environ["CHUNKMILL_EXECUTOR"] = "inline"
    sys.exit(main())
