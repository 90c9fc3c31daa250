"""A dataset that is served gives the samples that its folder gives, also where the server or the network fails."""

from __future__ import annotations

import contextlib
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

grpc = pytest.importorskip("grpc")

from chunkmill import ServedDataset  # noqa: E402 - not without grpc
from chunkmill.engine.catalog import CatalogClient, DatasetEntry  # noqa: E402
from chunkmill.engine.catalog.server import Access, CatalogService, ServiceOptions, start, token  # noqa: E402
from chunkmill.engine.catalog.server import served as module  # noqa: E402
from chunkmill.engine.errors import NotFoundError, ReadError, UnreachableError, UsageError  # noqa: E402
from chunkmill.engine.rrd import Recent  # noqa: E402
from chunkmill.engine.training.job import JobReader, ReaderShare  # noqa: E402
from chunkmill.training import (  # noqa: E402
    BlockShuffle,
    DataSource,
    Field,
    ImageDecoder,
    NoShuffle,
    NumericDecoder,
    RowSampling,
    SampleIndex,
    SampleReader,
    TextDecoder,
    TrainingJob,
    VideoFrameDecoder,
)
from drives import Drive, lake  # noqa: E402

VIDEO = "/front:VideoStream:sample"
FIELDS = {
    "joints": Field("/arm:Scalars:scalars", NumericDecoder(), window=(-1, 0, 2)),
    "grip": Field("/grip:Scalars:scalars", NumericDecoder(), fill="nan", window=(0,)),
    "top": Field("/top:EncodedImage:blob", ImageDecoder()),
    "front": Field(VIDEO, VideoFrameDecoder()),
    "task": Field("/task:TextDocument:text", TextDecoder()),
}


@pytest.fixture(scope="module")
def drives(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Drive], DatasetEntry]:
    """Three recordings."""
    return lake(tmp_path_factory.mktemp("drives"), 3, marked=True)


@pytest.fixture(scope="module")
def served(drives: tuple[list[Drive], DatasetEntry]) -> Iterator[ServedDataset]:
    """The same, over a line."""
    with start(service_of(drives[1])) as server:
        yield ServedDataset(f"rerun+http://127.0.0.1:{server.port}", "drives")


def service_of(dataset: DatasetEntry) -> CatalogService:
    """What answers for the catalog of a dataset."""
    return CatalogService(CatalogClient(dataset.catalog.url), ServiceOptions(readable=None))


def same(left: Any, right: Any) -> bool:
    """Whether two samples have the same values."""
    return left.keys() == right.keys() and all(
        np.array_equal(value, right[name], equal_nan=getattr(value, "dtype", np.dtype(object)).kind == "f")
        for name, value in left.items()
    )


@pytest.mark.parametrize("index", ["frame", "time"])
def test_samples_and_their_order_are_the_folder_s(
    index: str, drives: tuple[list[Drive], DatasetEntry], served: ServedDataset
) -> None:
    fields = {name: FIELDS[name] for name in ("top", "front", "task")} if index == "time" else FIELDS
    sampling = RowSampling(VIDEO) if index == "time" else None
    jobs = [
        TrainingJob.of(
            DataSource(some),
            index,
            fields,
            timeline_sampling=sampling,
            shuffle=BlockShuffle(16, 2),
            seed=3,
            block_size=10,
        )
        for some in (drives[1], pickle.loads(pickle.dumps(served)))
    ]
    for name in ("samples", "blocks", "order"):
        assert jobs[0].fingerprint[name] == jobs[1].fingerprint[name]
    here, there = ([s for batch in JobReader(job).batches(ReaderShare()) for s in batch] for job in jobs)
    assert len(here) == len(there) == len(jobs[0].plan)
    assert all(same(one, other) for one, other in zip(here, there, strict=True))
    again = pickle.loads(pickle.dumps(jobs[1]))
    assert again.fingerprint == jobs[1].fingerprint


def test_segments_that_are_named(served: ServedDataset) -> None:
    source = DataSource(served, ["drive_1"])
    assert [s.segment_id for s in SampleIndex.build(source, "frame", FIELDS).segments] == ["drive_1"]
    with pytest.raises(ValueError, match="no segment 'drive_9'"):
        SampleIndex.build(DataSource(served, ["drive_9"]), "frame", FIELDS)
    with pytest.raises(ValueError, match="no column '/nothing:x'"):
        SampleIndex.build(source, "frame", {"x": Field("/nothing:x", NumericDecoder())})


def test_what_was_pinned_stays_and_what_changed_is_another_job(tmp_path: Path) -> None:
    known, dataset = lake(tmp_path, 2)
    fields = {"joints": Field("/arm:Scalars:scalars", NumericDecoder())}
    with start(service_of(dataset)) as server:
        source = DataSource(ServedDataset(f"rerun+http://127.0.0.1:{server.port}", "drives"))
        before = TrainingJob.of(source, "frame", fields)
        dataset.unregister(segments_to_drop="drive_1", layers_to_drop=[])
        last = SampleReader(before.indexes[0]).read(np.array([89]))[89]
        assert last["joints"].tolist() == known[1].joints[44].tolist()
        after = TrainingJob.of(source, "frame", fields)
        assert after.fingerprint["sources"] != before.fingerprint["sources"]
        (tmp_path / "drive_0.rrd").unlink()
        with pytest.raises(ReadError):
            SampleReader(TrainingJob.of(source, "frame", FIELDS).indexes[0]).read(np.array([3]))


class Line:
    """A line to a server that may be cut: connections end in the middle of answers, and new ones are refused."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self.is_cut = False
        self.after: int | None = None
        """Bytes of answers after which it is cut once."""
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End all connections."""
        self.cuts += 1
        for some in self._open:
            with contextlib.suppress(OSError):
                some.shutdown(socket.SHUT_RDWR)
            some.close()
        self._open.clear()

    def close(self) -> None:
        """End it."""
        self.is_cut = True
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.is_cut:
                client.close()
                continue
            server = socket.create_connection(("127.0.0.1", self._target))
            self._open += [client, server]
            threading.Thread(target=self._pass, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, True), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, counts: bool) -> None:
        try:
            while data := source.recv(1 << 14):
                if counts and self.after is not None:
                    self.after -= len(data)
                    if self.after < 0:
                        self.after = None
                        target.sendall(data[: len(data) // 2])
                        self.cut()
                        return
                target.sendall(data)
        except OSError:
            return


@pytest.fixture
def line(served: ServedDataset) -> Iterator[Line]:
    """A line to the server."""
    made = Line(int(served.url.rpartition(":")[2]))
    yield made
    made.close()


@pytest.fixture
def uncached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetch chunks each time that they are needed."""
    monkeypatch.setattr(module, "_RECENT", Recent(0, 0))


@pytest.mark.parametrize("after", [2000, 9000, 20_000, 40_000])
def test_a_line_that_is_cut_loses_nothing(
    after: int, line: Line, drives: tuple[list[Drive], DatasetEntry], uncached: None
) -> None:
    served = ServedDataset(f"rerun+http://127.0.0.1:{line.port}", "drives", retry_seconds=20)
    job = TrainingJob.of(DataSource(served), "frame", FIELDS, shuffle=BlockShuffle(16, 2), block_size=10)
    order = job.plan.epoch(0).samples.tolist()
    line.after = after
    seen = []
    for batch in JobReader(job).batches(ReaderShare(batch_size=8)):
        seen += [sample["sample"] for sample in batch]
    assert seen == order, "nothing twice, and none lost"
    assert line.cuts == 1


def test_a_server_that_is_away_is_an_error_and_the_state_goes_on(tmp_path: Path, uncached: None) -> None:
    _, dataset = lake(tmp_path, 8)
    fields = {"front": FIELDS["front"]}
    with start(service_of(dataset)) as server:
        line = Line(server.port)

        def made(seconds: float) -> TrainingJob:
            served = ServedDataset(f"rerun+http://127.0.0.1:{line.port}", "drives", retry_seconds=seconds)
            return TrainingJob.of(DataSource(served), "frame", fields, shuffle=NoShuffle(), block_size=10, run=4)

        def read_and_cut() -> None:
            for batch in JobReader(job).batches(ReaderShare(batch_size=4)):
                seen.extend(sample["sample"] for sample in batch)
                line.is_cut = True
                line.cut()

        job, seen = made(0.3), list[int]()
        whole = job.plan.epoch(0).samples.tolist()
        with pytest.raises(UnreachableError, match="does not answer") as caught:
            read_and_cut()
        assert "the saved state of the job" in str(caught.value.hint) and caught.value.transient
        assert 0 < len(seen) < len(whole)
        line.is_cut = False
        again = made(20)
        assert again.fingerprint == job.fingerprint
        for batch in JobReader(again).batches(ReaderShare(start=len(seen), batch_size=4)):
            seen += [sample["sample"] for sample in batch]
        assert seen == whole
        line.close()


def serving(folder: Path, port: int) -> subprocess.Popen[bytes]:
    """The command that serves the lake of a folder, once its port is open."""
    command = [sys.executable, "-m", "chunkmill", "serve", str(folder / "lake"), "--port", str(port)]
    process = subprocess.Popen([*command, "--allow", str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return process
        time.sleep(0.1)
    raise AssertionError("the server does not open its port")


@pytest.mark.process
@pytest.mark.heavy
def test_a_server_that_is_killed_and_starts_again(tmp_path: Path, uncached: None) -> None:
    lake(tmp_path, 8)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    processes = [serving(tmp_path, port)]
    try:
        source = DataSource(ServedDataset(f"rerun+http://127.0.0.1:{port}", "drives"))
        job = TrainingJob.of(source, "frame", {"front": FIELDS["front"]}, shuffle=NoShuffle(), block_size=10, run=4)
        seen: list[int] = []
        starting: threading.Thread | None = None
        for batch in JobReader(job).batches(ReaderShare(batch_size=4)):
            seen += [sample["sample"] for sample in batch]
            if starting is None:
                processes[0].kill()
                processes[0].wait()
                starting = threading.Thread(target=lambda: processes.append(serving(tmp_path, port)))
                starting.start()
        assert starting is not None
        starting.join()
        assert seen == job.plan.epoch(0).samples.tolist() and len(processes) == 2
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_what_is_wrong_is_said(served: ServedDataset, drives: tuple[list[Drive], DatasetEntry]) -> None:
    with pytest.raises(NotFoundError, match="'nothing'"):
        SampleIndex.build(DataSource(ServedDataset(served.url, "nothing")), "frame", FIELDS)
    for url in ("http://127.0.0.1:1", "rerun+http://", "lake"):
        with pytest.raises(UsageError, match="not the address of a server"):
            ServedDataset(url, "drives")
    began = time.monotonic()
    with pytest.raises(UnreachableError):
        SampleIndex.build(
            DataSource(ServedDataset("rerun+http://127.0.0.1:1", "drives", retry_seconds=0.2)), "frame", FIELDS
        )
    assert time.monotonic() - began < 10


def test_a_token_is_sent_and_not_shown(
    drives: tuple[list[Drive], DatasetEntry], monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = b"s" * 32
    written = token(secret, can_write=False, seconds=60, hosts=["127.0.0.1"], subject="tests")
    with start(service_of(drives[1]), access=Access(secret)) as server:
        url = f"rerun+http://127.0.0.1:{server.port}"
        monkeypatch.delenv("REDAP_TOKEN", raising=False)
        with pytest.raises(UsageError, match="token"):
            SampleIndex.build(DataSource(ServedDataset(url, "drives")), "frame", FIELDS)
        given = ServedDataset(url, "drives", token=written)
        assert written not in repr(given)
        assert len(SampleIndex.build(DataSource(given), "frame", FIELDS)) == 135
        monkeypatch.setenv("REDAP_TOKEN", written)
        assert len(SampleIndex.build(DataSource(ServedDataset(url, "drives")), "frame", FIELDS)) == 135
