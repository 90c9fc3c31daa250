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
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from catalog_points import KINDS, Case, plant_unsafe_commit
from chunkmill.engine import faults
from chunkmill.engine.catalog import CatalogClient, maintenance, uploads
from chunkmill.engine.catalog.server import CatalogService, Method
from fault_runs import forked, reached, waited
from point_cases import told
from served_calls import Calls, RefusedError, serve
from served_story import State, Story, make_world, state_of


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
            maintenance.WEEK = uploads.WEEK = timedelta()  # type: ignore[misc]
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

    def begun(self: NewUpload, draft: Path, place: Path, key: str | None = None) -> None:
        del key
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
    began = time.monotonic()
    warm_up_servers()
    template = Template(scratch)
    try:
        try:
            needed = [case.partition("/")[0] for case in (options.case or "").split(",")]
            template.make(max(needed, key=template.names.index) if options.case else template.names[-1])
        except ClientError as error:
            print(f"the story fails by itself: {error}")
            return 1
        tried = (
            (f"{step}/{case}", step, partial(run, template, step, case)) for step, case in cases(options, template)
        )
        return told("serve_points.py", "step", options.seed, began, tried)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
