"""Cut each writing call of a served lake at every durable step, and look whether it is there whole, or not at all.

    python tests/faults/serve_points.py [--every 1] [--steps S,…] [--kinds K,…] [--seed 1]
    python tests/faults/serve_points.py --case STEP/POINT:KIND:NTH[:unsafe]

A client goes through a story in which every method that writes is called, and uploads files; before each step the lake
is copied. Of each step, every time that a point is reached in the server, the server is cut there by SIGKILL, an
exception, a full disk or a torn write. A server that was killed is started again. Then what it tells of entries,
segments, chunks, rows and uploads is as before the step or as after it, and as after it where the client was told that
it is done; where it is not there, the step can be done. A check of the catalog finds nothing, and maintenance leaves no
draft. ``unsafe`` plants uploads that are written under their own names, and commits likewise. Prints ``N passed, M
failed``, and a command for each failure.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from catalog_points import KINDS, Case, plant_unsafe_commit
from catalog_writers import write_file
from chunkmill.engine import faults
from chunkmill.engine.catalog import CatalogClient, retention, uploads
from chunkmill.engine.catalog.server import CatalogService, Method
from chunkmill.engine.catalog.server.envelopes import part_of, rows_in, schema_message
from chunkmill.engine.catalog.server.messages import cloud, entry_id_of
from fault_runs import forked, reached, waited
from served_calls import Calls, RefusedError, serve

APPEND, OVERWRITE, REPLACE, UPDATE = 1, 2, 3, 4
RENEW, SKIP = 1, 2
LONG: Final = 9 << 20
"""Bytes of an upload that comes in several pieces."""
ALREADY_EXISTS: Final = 6
NOTES: Final = pa.schema([pa.field("key", pa.int64(), False, {"rerun:is_table_index": "true"}), ("v", pa.string())])

State = dict[str, Any]


class Story:
    """The steps, by their names, each a call that writes."""

    def __init__(self, world: Path, calls: Any) -> None:
        self._world = world
        self._calls = calls
        self.steps: dict[str, Callable[[], object]] = {
            "create": lambda: calls("CreateDatasetEntry", name="drives"),
            "upload": lambda: self._upload("project/short.rrd", (self._files / "s5-0.rrd").read_bytes()),
            "register": lambda: self._register("drives", RENEW, "s0-0.rrd", "s1-0.rrd", "s2-0.rrd"),
            "properties": lambda: calls(
                "SetSegmentProperties",
                self._id("drives"),
                segment_id={"id": "s0"},
                properties=part_of(pa.table({"weather": [["rain"]]})),
            ),
            "none": lambda: calls(
                "DeleteSegmentProperties", self._id("drives"), segments=[{"segment_id": {"id": "s0"}}]
            ),
            "cancel": lambda: calls("CancelTasks", ids=[{"id": "task_0000000000000000"}]),
            "prefix": lambda: self._register("drives", SKIP, "more", layer="labels"),
            "replace": lambda: self._register("drives", RENEW, "s0-1.rrd", "s2-1.rrd"),
            "unregister": lambda: calls(
                "UnregisterFromDataset", self._id("drives"), segments_to_drop=[{"id": "s1"}], layers_to_drop=["base"]
            ),
            "blueprint": lambda: self._register("drives", RENEW, "look-0.rbl", to_hidden=True),
            "default": lambda: self._default("UpdateDatasetEntry", "drives", "look-0"),
            "rename": lambda: calls("UpdateEntry", id=self._message("drives"), entry_details_update={"name": "runs"}),
            "maintain": lambda: calls(
                "DoMaintenance",
                self._id("runs"),
                compact_fragments=True,
                cleanup_before={"seconds": int(time.time())},
                unsafe_allow_recent_cleanup=True,
            ),
            "table": lambda: calls("CreateTableEntry", name="notes", schema=schema_message(NOTES)),
            "append": lambda: self._write(APPEND, [1, 2], [3]),
            "upsert": lambda: self._write(REPLACE, [2, 4], [5]),
            "update": lambda: self._write(UPDATE, [1], [4]),
            "overwrite": lambda: self._write(OVERWRITE, [6], [7]),
            "outside": self._make_outside,
            "adopt": lambda: calls("RegisterTable", name="adopted", provider_details=self._outside("adopted")),
            "look": lambda: self._default("UpdateTableEntry", "notes", ""),
            "long": lambda: self._upload("project/long.bin", bytes(LONG)),
            "parts": lambda: self._upload_parts("project/parts.bin", bytes(LONG), b"end"),
            "abort": lambda: self._upload_parts("project/none.bin", b"begun"),
            "uploaded": lambda: self._register("runs", RENEW, "../lake/uploads/project/short.rrd"),
            "drop": lambda: calls("DeleteEntry", id=self._message("notes")),
            "delete": lambda: calls("DeleteEntry", id=self._message("runs")),
            "maintain all": lambda: calls("DoGlobalMaintenance"),
        }

    @property
    def _files(self) -> Path:
        return self._world / "files"

    def _message(self, name: str) -> Any:
        found = self._calls("FindEntries", filter={"name": name}).entries
        if not found:
            raise LookupError(f"there is no entry {name}")
        return found[0].id

    def _id(self, name: str) -> str:
        return str(entry_id_of(self._message(name)))

    def _hidden(self, name: str) -> Any:
        read = self._calls("ReadDatasetEntry", self._id(name)).dataset
        return read.dataset_details.blueprint_dataset

    def _register(
        self, dataset: str, on_duplicate: int, *names: str, layer: str = "base", to_hidden: bool = False
    ) -> None:
        id_ = str(entry_id_of(self._hidden(dataset))) if to_hidden else self._id(dataset)
        places = [(self._files / name).resolve() for name in names]
        sources = [
            {"storage_url": place.as_uri(), "typ": 1, "layer": layer, "prefix": place.is_dir()} for place in places
        ]
        told = self._calls("RegisterWithDataset", id_, data_sources=sources, on_duplicate=on_duplicate)
        tasks = [{"id": task} for task in rows_in(told.data)["rerun_task_id"].to_pylist()]
        states = rows_in(self._calls("QueryTasks", ids=tasks).data)
        if set(states["exec_status"].to_pylist()) != {"success"}:
            raise RefusedError(-2, str(states["msgs"].to_pylist()))

    def _default(self, method: str, name: str, segment: str) -> None:
        details: dict[str, Any] = {"default_blueprint_segment": {"id": segment}}
        if method == "UpdateDatasetEntry":
            details["blueprint_dataset"] = self._hidden(name)
            self._calls(method, id=self._message(name), dataset_details=details)
        else:
            self._calls(method, id=self._message(name), table_details=details)

    def _write(self, mode: int, *keys: list[int]) -> None:
        batches = [pa.table({"key": some, "v": [f"{mode}"] * len(some)}, NOTES) for some in keys]
        requests = [{"dataframe_part": part_of(batch), "insert_mode": mode} for batch in batches]
        self._calls.sent("WriteTable", requests, self._id("notes"))

    def _outside(self, name: str) -> dict[str, Any]:
        table = cloud("LanceTable")(table_url=(self._world / "tables" / name).as_uri())
        return {"type_url": "/rerun.cloud.v1alpha1.LanceTable", "value": table.SerializeToString()}

    def _make_outside(self) -> None:
        """Make a table at a place of the client's; where it is there already, as of a call that was cut, take it in."""
        place = self._outside("outside")
        try:
            self._calls("CreateTableEntry", name="outside", schema=schema_message(NOTES), provider_details=place)
        except RefusedError as error:
            if error.status != ALREADY_EXISTS:
                raise
            self._calls("RegisterTable", name="outside", provider_details=place)

    def _upload(self, key: str, data: bytes) -> None:
        grant = self._calls("GetWriteAccessGrant", key=key, size_bytes=len(data)).grant
        self._calls.put(grant.http_request.url, data)

    def _upload_parts(self, key: str, *parts: bytes) -> None:
        """Upload a file in parts; one of one part is given up."""
        token = self._calls("GetWriteAccessGrant", key=key, supported_upload_methods=[2]).grant.multipart_request
        numbers = range(1, len(parts) + 1)
        asked = {"upload_token": token.upload_token, "part_numbers": numbers}
        grants = self._calls("GetMultipartUploadPartGrants", **asked).requests
        etags = [self._calls.put(grant.url, data) for grant, data in zip(grants, parts, strict=True)]
        if len(parts) == 1:
            self._calls("AbortMultipartUpload", upload_token=token.upload_token)
            return
        named = [{"part_number": number, "etag": etag} for number, etag in zip(numbers, etags, strict=True)]
        self._calls("CompleteMultipartUpload", upload_token=token.upload_token, parts=named)


def make_world(world: Path) -> int:
    """Write all that the story is about; gives 0."""
    from chunkmill.engine.lance import UserTable

    (world / "files" / "more").mkdir(parents=True)
    (world / "lake").mkdir()
    for name in ("s0-0", "s0-1", "s1-0", "s2-0", "s2-1", "s5-0", "more/s3-0", "more/s0-0"):
        path = world / "files" / f"{name}.rrd"
        write_file(path, path.stem.partition("-")[0])
    write_file(world / "files" / "look-0.rbl", "look-0", "blueprint")
    UserTable(world / "tables" / "adopted", "adopted").create(NOTES)
    return 0


def state_of(world: Path, calls: Calls) -> State:
    """What the server tells of, every chunk and row read, and the files that were uploaded."""
    entries: list[Any] = []
    for entry in calls("FindEntries", filter={"entry_kinds": [1, 3, 5, 6]}).entries:
        id_ = str(entry_id_of(entry.id))
        if entry.entry_kind == 3:
            table = calls("ReadTableEntry", id=entry.id).table.table_details
            rows = [row for part in calls("ScanTable", table_id=entry.id) for row in _rows(part.dataframe_part)]
            own = [] if entry.name == "__entries" else sorted(map(list, rows))
            entries.append([entry.name, 3, table.HasField("blueprint_dataset"), own])
            continue
        details = calls("ReadDatasetEntry", id_).dataset.dataset_details
        default = details.default_blueprint_segment.id
        manifest = rows_in(calls("ScanDatasetManifest", id_)[0].data)
        layers = sorted(
            zip(*(manifest[f"rerun_{name}"].to_pylist() for name in ("segment_id", "layer_name")), strict=True)
        )
        name = entry.name if entry.entry_kind == 1 else "hidden"
        segments = [{"id": segment} for segment, _ in layers] or [{"id": "none"}]
        set_by_clients = [
            [one.segment_id.id, rows_in(one.properties).to_pylist()]
            for answer in calls("GetSegmentProperties", id_, segment_ids=segments)
            for one in answer.segments
        ]
        entries.append([name, entry.entry_kind, default, layers, set_by_clients, _content(calls, id_)])
    there = sorted(path for path in (world / "lake").glob("uploads/**/*") if path.is_file())
    named = [path for path in there if not path.name.startswith(".")]
    files = {str(path.relative_to(world)): hashlib.sha256(path.read_bytes()).hexdigest() for path in named}
    found: State = json.loads(json.dumps({"entries": sorted(entries, key=str), "uploads": files}))
    return found


def _rows(part: Any) -> Iterator[tuple[Any, ...]]:
    columns = rows_in(part).to_pydict()
    return zip(*columns.values(), strict=True)


def _content(calls: Calls, id_: str) -> str:
    """A digest of all chunks of a dataset."""
    infos = [answer.data for answer in calls("QueryDataset", id_, select_all_entity_paths=True)]
    chunks = [chunk.payload for answer in calls("FetchChunks", chunk_infos=infos) for chunk in answer.chunks]
    return hashlib.sha256(b"".join(sorted(hashlib.sha256(chunk).digest() for chunk in chunks))).hexdigest()


class Scene:
    """A lake before one step of the story, and a server of it with a fault planned."""

    def __init__(self, root: Path, plan: str, *, unsafe: bool = False) -> None:
        self.root = root
        self.world = root / "world"
        self.log = root / "log"
        self.log.mkdir(exist_ok=True)
        self._told = root / "port"
        self._environment = {faults.LOG: str(self.log), faults.PLAN: plan}
        self._unsafe = unsafe
        self._pid = 0

    def start(self) -> None:
        """Start a server."""
        self._told.unlink(missing_ok=True)

        def run() -> int:
            faulthandler.enable()
            retention.WEEK = uploads.WEEK = timedelta()  # type: ignore[misc]
            if self._unsafe:
                plant_unsafe_commit()
                plant_unsafe_upload()
            return serve(self.world / "lake", self._told, [self.world])

        self._pid = forked(run, self.root / "server.log", self._environment)

    def by_client(self, work: Callable[[Calls], Any]) -> Any:
        """What a client in a fork does, as JSON."""
        answer, port = self.root / "answer.json", self._port()
        answer.unlink(missing_ok=True)

        def client() -> int:
            calls = Calls(methods(), port)
            answer.write_text(json.dumps(work(calls)))
            return 0

        if code := waited(forked(client, self.root / "client.log")):
            raise ClientError(f"the client ended with {code}: {(self.root / 'client.log').read_text()[-3000:]}")
        return json.loads(answer.read_text())

    def _port(self) -> int:
        while not self._told.exists():
            if (code := self.ended(0.01)) is not None:
                raise ClientError(f"the server ended with {code}: {self.said()}")
        return int(self._told.read_text())

    def ended(self, seconds: float = 5.0) -> int | None:
        """The exit code of the server, once it has ended by itself; None where it goes on."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            done, status = os.waitpid(self._pid, os.WNOHANG)
            if done:
                self._pid = 0
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.005)
        return None

    def said(self) -> str:
        """The end of the server's log."""
        return (self.root / "server.log").read_text()[-6000:]

    def stop(self) -> None:
        """End the server."""
        if self._pid:
            os.killpg(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0


class ClientError(Exception):
    """A client could not do its work."""


def methods() -> Mapping[str, Method]:
    """The methods of the service, for their messages."""
    with tempfile.TemporaryDirectory() as folder:
        return CatalogService(CatalogClient(folder)).methods


def plant_unsafe_upload() -> None:
    """Let an upload be written under its own name, where it can be seen while it is half there."""
    from chunkmill.engine.catalog.uploads import NewUpload

    begin = NewUpload.__init__

    def begun(self: NewUpload, draft: Path, place: Path) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        begin(self, place, place)

    def published(self: NewUpload) -> None:
        self._file.close()

    NewUpload.__init__ = begun  # type: ignore[method-assign]
    NewUpload.publish = NewUpload.discard = published  # type: ignore[method-assign]


class Template:
    """The lake before each step, and what a server tells of it, of a run without faults."""

    def __init__(self, scratch: Path) -> None:
        self._befores = scratch / "before"
        self.root = scratch / "case"
        self.names = list(Story(scratch, None).steps)
        self.states: list[State] = []
        self.counts: dict[str, dict[str, int]] = {}

    def make(self, last: str) -> None:
        """Go through the story, to a step of it. Raises ``ClientError`` where it fails, or leaves a method out."""
        self.root.mkdir()
        log = self.root / "world.log"
        if waited(forked(lambda: make_world(self.root / "world"), log)):
            raise ClientError(log.read_text())
        called: set[str] = set()
        for name in self.names[: self.names.index(last) + 1]:
            shutil.copytree(self.root / "world" / "lake", self._befores / name / "lake")
            shutil.copytree(self.root / "world" / "tables", self._befores / name / "tables")
            shutil.rmtree(self.root / "log", ignore_errors=True)
            scene = Scene(self.root, "")
            scene.start()

            def work(calls: Calls, name: str = name) -> list[Any]:
                before = state_of(self.root / "world", calls)
                calls.called.clear()
                Story(self.root / "world", calls).steps[name]()
                names = sorted(calls.called)
                writing = [method.name for method in methods().values() if method.writes]
                return [before, names, state_of(self.root / "world", calls), writing]

            before, names, after, writing = scene.by_client(work)
            scene.stop()
            if self.states and before != self.states[-1]:
                raise ClientError(f"before {name} there is {before}, and was {self.states[-1]}")
            self.states = [*(self.states or [before]), after]
            called |= set(names)
            self.counts[name] = reached(self.root / "log")
        missing = sorted({*writing} - called)
        if missing and last == self.names[-1]:
            raise ClientError(f"no step calls {missing}")

    def restore(self, name: str) -> tuple[State, State]:
        """Put the lake there as it was before a step; what is told before it and after."""
        for part in ("lake", "tables"):
            shutil.rmtree(self.root / "world" / part)
            shutil.copytree(self._befores / name / part, self.root / "world" / part)
        shutil.rmtree(self.root / "log", ignore_errors=True)
        at = self.names.index(name)
        return self.states[at], self.states[at + 1]


def run(template: Template, step: str, case: Case) -> list[str]:
    """Do one step with one fault; what went wrong."""
    before, after = template.restore(step)
    scene = Scene(template.root, f"{case.point}:{case.kind}:{case.nth}", unsafe=case.unsafe)
    scene.start()
    try:
        return _judged(scene, step, case, before, after)
    except ClientError as error:
        return [str(error), f"the server, which ended with {scene.ended(0.1)}, said {scene.said()}"]
    finally:
        scene.stop()


def _judged(scene: Scene, step: str, case: Case, before: State, after: State) -> list[str]:
    def done(calls: Calls) -> list[Any] | None:
        try:
            Story(scene.world, calls).steps[step]()
        except RefusedError as error:
            return [error.status, error.text]
        return None

    def again(calls: Calls) -> list[Any]:
        found, refused = state_of(scene.world, calls), None
        if found == before:
            refused = done(calls)
        last = state_of(scene.world, calls)
        calls("DoGlobalMaintenance")
        faults_of_lake = [str(fault) for fault in CatalogClient(scene.world / "lake").check()]
        left = [str(path) for path in scene.world.glob("lake/uploads/.*")]
        return [found, refused, last, state_of(scene.world, calls), [*faults_of_lake, *left]]

    told = scene.by_client(done)
    wrong = []
    if reached(scene.log).get(case.point, 0) < case.nth:
        return [f"{case.point} was not reached so often"]
    if case.kind in ("kill", "torn"):
        if (code := scene.ended()) != -signal.SIGKILL:
            return [f"the server ended with {code}: {scene.said()}"]
        wrong += [] if told else ["the client was told that it is done, by a server that was killed"]
        scene.start()
    found, refused, last, kept, more = scene.by_client(again)
    if found not in ([before, after] if told else [after]):
        wrong.append(f"the client was told {told}, and there is {_differing(found, before, after)}")
    wrong += [f"done again, it was refused: {refused}"] if refused else []
    wrong += [] if last == after else [f"done again, there is {_differing(last, after)}"]
    wrong += [] if kept == last else [f"after maintenance there is {_differing(kept, last)}"]
    return wrong + more


def _differing(found: State, *states: State) -> str:
    """What there is that is in none of these states, or is in all of them and missing, or the whole of it."""
    parts = [set(map(str, [*state["entries"], *state["uploads"].items()])) for state in (found, *states)]
    more, less = parts[0].difference(*parts[1:]), set.intersection(*parts[1:]) - parts[0]
    return f"{sorted(more)}, and not {sorted(less)}" if more or less else f"{found}"


def warm_up_servers() -> None:
    """Import what servers and clients are going to import, so that each fork need not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Lance, that it does not survive a fork: it is used by none of us here
        for name in ("grpc", "uvicorn.protocols.http.h11_impl", "uvicorn.loops.asyncio", "lance", "jwt"):
            import_module(name)


def cases(options: argparse.Namespace, template: Template) -> Iterator[tuple[str, Case]]:
    """Every time that a point is reached in a step, in every way, or each ``every``-th of these."""
    if options.case:
        for text in options.case.split(","):
            step, _, case = text.partition("/")
            yield step, Case.parse(case)
        return
    steps = options.steps.split(",") if options.steps else template.names
    found = [
        (step, Case(point, kind, nth))
        for step in steps
        for point, count in template.counts[step].items()
        for kind in options.kinds.split(",")
        if kind != "torn" or point.endswith((".draft", ".write"))
        for nth in range(1, count + 1)
    ]
    random.Random(options.seed).shuffle(found)
    yield from found[:: options.every]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--steps", help="with commas")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", help="with commas")
    options = parser.parse_args(arguments)
    os.environ["CHUNKMILL_EXECUTOR"] = "inline"
    scratch = Path(tempfile.mkdtemp(prefix="chunkmill-serve-"))
    began, passed, failed, ran = time.monotonic(), 0, 0, Counter[str]()
    warm_up_servers()
    template = Template(scratch)
    try:
        try:
            needed = [case.partition("/")[0] for case in (options.case or "").split(",")]
            template.make(max(needed, key=template.names.index) if options.case else template.names[-1])
        except ClientError as error:
            print(f"the story fails by itself: {error}")
            return 1
        for step, case in cases(options, template):
            wrong = run(template, step, case)
            ran[step] += 1
            passed, failed = passed + (not wrong), failed + bool(wrong)
            if wrong:
                print(f"FAILED {step}/{case}\n  " + "\n  ".join(wrong))
                print(f"  again: python tests/faults/serve_points.py --case {step}/{case}", flush=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"cases of each step: {dict(ran)}")
    print(f"{passed} passed, {failed} failed; seed {options.seed}, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
