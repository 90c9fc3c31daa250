"""One writer at a time on a store: who gets the lease, who is refused, and when it is taken over."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from chunkmill.engine.errors import WriteError
from chunkmill.engine.execution.lease import Holder, Lease, lease_holder
from file_limits import SmallDisk, largest_file

_HOLD = """
import sys, time
from pathlib import Path
from chunkmill.engine.errors import WriteError
from chunkmill.engine.execution.lease import Lease
home, start = Path(sys.argv[1]), float(sys.argv[2])
while time.time() < start:
    pass
try:
    lease = Lease.take(home, "ingest", ttl_seconds=float(sys.argv[3]))
except WriteError as error:
    print("refused", error, flush=True)
else:
    print("taken", lease.number, flush=True)
    for line in sys.stdin:
        try:
            lease.check()
            print("held", flush=True)
        except WriteError as error:
            print("lost", error, flush=True)
"""


class Other:
    """Another process, which takes the lease and keeps it until it is killed."""

    def __init__(self, home: Path, *, start: float = 0.0, ttl: float = 30.0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _HOLD, str(home), str(start), str(ttl)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def check(self) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write("check\n")
        self.process.stdin.flush()
        return self.says()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def write(home: Path, holder: Holder, number: int = 1) -> Path:
    """The file of a lease as another process would have left it."""
    (home / "lease").mkdir(exist_ok=True)
    path = home / "lease" / f"{number:08d}.json"
    path.write_bytes(holder.to_bytes())
    return path


def elsewhere(ttl: float = 0.3) -> Holder:
    return replace(Holder.here("ingest", ttl), host="robot7", user="ada", pid=812, taken=1_700_000_000.0)


def files(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "lease").iterdir())


def test_a_lease_is_taken_held_and_released(tmp_path: Path) -> None:
    with Lease.take(tmp_path / "lake") as lease:
        lease.check()
        found = lease_holder(tmp_path / "lake")
        assert found is not None
        assert (found.holder, found.pid, found.token) == ("ingest", os.getpid(), lease.holder.token)
    assert lease_holder(tmp_path / "lake") is None
    with Lease.take(tmp_path / "lake", "compact") as again:
        assert again.number == 2


def test_there_is_no_holder_where_there_is_no_store(tmp_path: Path) -> None:
    assert lease_holder(tmp_path / "none") is None
    assert not list(tmp_path.iterdir())


def test_a_second_writer_is_refused_by_a_message_that_names_the_first(tmp_path: Path) -> None:
    with Lease.take(tmp_path, "ingest") as lease, pytest.raises(WriteError) as refused:
        Lease.take(tmp_path, "compact")
    text = str(refused.value)
    assert refused.value.transient
    assert str(lease.holder) in text
    assert f"process {os.getpid()} of {lease.holder.user} on {lease.holder.host}, since 2" in text
    assert "kill" not in text and "its other call" in text


def test_a_writer_in_another_process_is_named_with_what_ends_it(tmp_path: Path) -> None:
    other = Other(tmp_path)
    assert other.says() == "taken 1\n"
    try:
        with pytest.raises(WriteError, match=rf"another process is writing here.*kill {other.process.pid}"):
            Lease.take(tmp_path)
    finally:
        other.kill()


def test_the_process_that_was_refused_changes_nothing(tmp_path: Path) -> None:
    with Lease.take(tmp_path) as lease:
        before = files(tmp_path)
        with pytest.raises(WriteError):
            Lease.take(tmp_path)
        assert files(tmp_path) == before
        lease.check()


def test_of_eight_processes_exactly_one_takes_over_from_a_dead_one(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", "pass"])
    dead.wait()
    write(tmp_path, replace(Holder.here("ingest", 30.0), pid=dead.pid))
    start = time.time() + 2.0
    others = [Other(tmp_path, start=start) for _ in range(8)]
    try:
        said = sorted(other.says().split()[0] for other in others)
        assert said == ["refused"] * 7 + ["taken"]
        winner = lease_holder(tmp_path)
        assert winner is not None and winner.pid in [other.process.pid for other in others]
        assert files(tmp_path) == ["00000001.json", "00000002.json"]
    finally:
        for other in others:
            other.kill()


def test_a_killed_writer_is_followed_at_once(tmp_path: Path) -> None:
    other = Other(tmp_path)
    assert other.says() == "taken 1\n"
    other.kill()
    assert lease_holder(tmp_path) is None
    began = time.monotonic()
    with Lease.take(tmp_path) as lease:
        assert lease.number == 2
    assert time.monotonic() - began < 5


def test_a_process_that_died_and_was_not_waited_for_is_dead(tmp_path: Path) -> None:
    other = Other(tmp_path)
    assert other.says() == "taken 1\n"
    other.process.kill()
    os.waitid(os.P_PID, other.process.pid, os.WEXITED | os.WNOWAIT)
    with Lease.take(tmp_path) as lease:
        assert lease.number == 2
    other.kill()


def test_another_process_with_the_number_of_a_dead_one_does_not_hold_its_lease(tmp_path: Path) -> None:
    write(tmp_path, replace(Holder.here("ingest", 30.0), started="1"))
    with Lease.take(tmp_path) as lease:
        assert lease.number == 2


@pytest.mark.parametrize("queue", [False, True])
def test_a_writer_that_is_stopped_is_followed_after_its_time(tmp_path: Path, queue: bool) -> None:
    other = Other(tmp_path, ttl=1.0)
    assert other.says() == "taken 1\n"
    try:
        other.process.send_signal(signal.SIGSTOP)
        with pytest.raises(WriteError, match="another process is writing here"):
            Lease.take(tmp_path)
        time.sleep(1.1)
        with pytest.raises(WriteError, match="another process is writing here"):
            Lease.take(tmp_path, wait=False)
        began = time.monotonic()
        with Lease.take(tmp_path, queue=queue):
            assert 1.0 <= time.monotonic() - began < 10
            other.process.send_signal(signal.SIGCONT)
            assert other.check().startswith("lost")
    finally:
        other.kill()


def test_a_writer_on_this_host_that_renews_is_not_followed_whatever_its_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Holder, "is_heard", False)  # as after the clock was set
    with Lease.take(tmp_path, ttl_seconds=0.5) as first:
        with pytest.raises(WriteError, match="already writing here"):
            Lease.take(tmp_path)
        first.check()


def test_a_stopped_writer_finds_that_it_lost_its_lease(tmp_path: Path) -> None:
    other = Other(tmp_path, ttl=0.2)
    assert other.says() == "taken 1\n"
    try:
        other.process.send_signal(signal.SIGSTOP)
        write(tmp_path, elsewhere(), 2)
        other.process.send_signal(signal.SIGCONT)
        said = other.check()
        assert said.startswith("lost") and "taken over by ingest (process 812 of ada on robot7" in said
    finally:
        other.kill()


def test_a_silent_writer_on_another_host_is_followed_after_its_time(tmp_path: Path) -> None:
    write(tmp_path, elsewhere(0.3))
    began = time.monotonic()
    with Lease.take(tmp_path) as lease:
        assert 0.3 <= time.monotonic() - began < 5
        assert lease.number == 2


def test_who_queues_waits_for_a_writer_of_this_host(tmp_path: Path) -> None:
    first = Lease.take(tmp_path)
    timer = threading.Timer(0.3, first.release)
    timer.start()
    with Lease.take(tmp_path, queue=True) as lease:
        assert lease.number == 2 and first.holder.is_released
    timer.join()


@pytest.mark.heavy
def test_who_queues_waits_for_a_writer_elsewhere_as_long_as_that_is_heard_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    holder = elsewhere(1.0)
    path = write(tmp_path, holder)

    def heard() -> None:
        for _ in range(8):
            time.sleep(0.1)
            path.with_suffix(".new").write_bytes(holder.renew().to_bytes())
            path.with_suffix(".new").rename(path)

    writer, began = threading.Thread(target=heard), time.monotonic()
    writer.start()
    with Lease.take(tmp_path, queue=True) as lease:
        assert 1.2 <= time.monotonic() - began < 10 and lease.number == 2
    assert "ada on robot7, since" in caplog.text and "has not renewed its lease" in caplog.text
    writer.join()


def test_the_clock_of_another_host_does_not_matter(tmp_path: Path) -> None:
    write(tmp_path, replace(elsewhere(0.3), renewed=time.time() + 1e6))
    with Lease.take(tmp_path) as lease:
        lease.check()


def test_a_writer_on_another_host_that_renews_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Lease.take(tmp_path, ttl_seconds=0.3)
    monkeypatch.setattr("socket.gethostname", lambda: "robot8")
    with first, pytest.raises(WriteError, match="another process is writing here") as refused:
        Lease.take(tmp_path)
    assert "kill" not in str(refused.value)


def test_a_writer_in_another_container_is_not_taken_for_dead(tmp_path: Path) -> None:
    holder = replace(Holder.here("ingest", 0.2), pid=2**22 + 1, namespace="pid:[1]")
    write(tmp_path, holder)
    assert not holder.is_dead
    assert lease_holder(tmp_path) == holder


def test_a_lease_is_renewed_for_as_long_as_it_is_held(tmp_path: Path) -> None:
    with Lease.take(tmp_path, ttl_seconds=0.15) as lease:
        first = lease_holder(tmp_path)
        time.sleep(0.4)
        later = lease_holder(tmp_path)
        lease.check()
    assert first is not None and later is not None
    assert later.renewed > first.renewed
    assert later.taken == first.taken


def test_a_lost_lease_stays_lost_and_is_left_to_the_other(tmp_path: Path) -> None:
    lease = Lease.take(tmp_path, ttl_seconds=0.1)
    other = elsewhere()
    path = write(tmp_path, other, 2)
    for _ in range(2):
        with pytest.raises(WriteError, match="was lost: it was taken over by ingest") as lost:
            lease.check()
        assert lost.value.transient
    time.sleep(0.2)
    lease.release()
    assert Holder.parse(path.read_bytes()) == other


@pytest.mark.parametrize("number", [1, 2])
def test_removed_files_are_noticed(tmp_path: Path, number: int) -> None:
    with Lease.take(tmp_path) as lease:
        (tmp_path / "lease" / "00000001.json").unlink()
        if number == 1:
            write(tmp_path, elsewhere())
        with pytest.raises(WriteError, match="was lost"):
            lease.check()


def test_a_released_lease_is_not_held(tmp_path: Path) -> None:
    lease = Lease.take(tmp_path)
    lease.release()
    lease.release()
    with pytest.raises(WriteError, match="released"):
        lease.check()


def test_a_late_comer_with_an_old_number_gives_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its look and its step two others have held the lease; the number it creates is free again."""
    from chunkmill.engine.execution import lease as module

    gone = replace(elsewhere(), released=1.0)
    write(tmp_path, gone, 5)
    real, looks = module._newest, []

    def look(folder, home):
        found = real(folder, home)
        if not looks:
            write(tmp_path, gone, 6).unlink()
            write(tmp_path, gone, 7)
        looks.append(found.number)
        return found

    monkeypatch.setattr(module, "_newest", look)
    with Lease.take(tmp_path) as lease:
        assert lease.number == 8
    assert looks[:2] == [5, 7]
    assert files(tmp_path) == ["00000005.json", "00000007.json", "00000008.json"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": 1}', b'{"format": 9}', b"\xff", b"[" * 100_000])
def test_a_damaged_file_delays_but_does_not_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setattr("chunkmill.engine.execution.lease._PATIENCE", 0.1)
    write(tmp_path, elsewhere()).write_bytes(content)
    assert lease_holder(tmp_path) is None
    with Lease.take(tmp_path) as lease:
        assert lease.number == 2


@pytest.mark.parametrize(
    "change",
    [{"pid": "x"}, {"pid": -1}, {"pid": 2**80}, {"ttl": 0}, {"ttl": float("nan")}, {"ttl": "9"}, {"taken": 1e300}],
)
def test_no_field_of_a_file_breaks_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, object]
) -> None:
    monkeypatch.setattr("chunkmill.engine.execution.lease._PATIENCE", 0.1)
    fields = json.loads(replace(Holder.here("ingest", 0.1), namespace="elsewhere").to_bytes())
    path = write(tmp_path, elsewhere())
    path.write_text(json.dumps({**fields, **change}))
    str(lease_holder(tmp_path))
    with Lease.take(tmp_path) as lease:
        assert lease.number == 2


def test_files_of_long_past_leases_and_drafts_of_the_dead_do_not_pile_up(tmp_path: Path) -> None:
    for _ in range(12):
        Lease.take(tmp_path).release()
    (tmp_path / "lease" / ".abc.draft").touch()
    (tmp_path / "lease" / "00000012.json.open").touch()
    with Lease.take(tmp_path):
        assert files(tmp_path) == [f"{n:08d}.json" for n in range(5, 14)]


def test_a_failure_right_after_taking_releases_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHUNKMILL_FAULTS", "lease.take:exception")
    monkeypatch.setattr("chunkmill.engine.faults._here", {})
    with pytest.raises(RuntimeError, match="planned"):
        Lease.take(tmp_path)
    monkeypatch.delenv("CHUNKMILL_FAULTS")
    with Lease.take(tmp_path) as lease:
        assert lease.number == 2


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "lake").write_bytes(b"")
    with pytest.raises(WriteError, match="lake"):
        Lease.take(tmp_path / "lake")


_FULL = """
import sys, time
from pathlib import Path
from chunkmill.engine.execution.lease import Lease, _replace
from chunkmill.engine.execution import lease as module
from chunkmill.engine.errors import NoSpaceError
from errno import EROFS
lease = Lease.take(Path(sys.argv[1]), "ingest", ttl_seconds=float(sys.argv[2]))
def broken(*_):
    raise OSError(EROFS, "Read-only file system")
module._replace = broken
lease.release()
print("given up", flush=True)
sys.stdin.readline()
module._replace = _replace
print("space", flush=True)
sys.stdin.readline()
"""


def gave_up(home: Path, ttl: float) -> subprocess.Popen[str]:
    """A process that lives on after it could not write that it released the lease."""
    process = subprocess.Popen(
        [sys.executable, "-c", _FULL, str(home), str(ttl)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "given up\n"
    return process


@pytest.mark.parametrize("limit", [0, 600])
def test_a_lease_that_cannot_be_released_is_free_in_its_process(tmp_path: Path, limit: int) -> None:
    lease = Lease.take(tmp_path)
    with largest_file(limit):
        lease.release()
    began = time.monotonic()
    assert lease_holder(tmp_path) is None
    with Lease.take(tmp_path, queue=True), pytest.raises(WriteError, match="released"):
        lease.check()
    with Lease.take(tmp_path):
        assert time.monotonic() - began < 5


def test_a_lease_that_cannot_be_released_is_free_for_others_after_its_time(tmp_path: Path) -> None:
    process, began = gave_up(tmp_path, 0.6), time.monotonic()
    try:
        with Lease.take(tmp_path, queue=True) as lease:
            assert lease.number == 2
            assert 0.5 < time.monotonic() - began < 10
    finally:
        process.communicate("\n\n")


def test_a_release_that_failed_is_tried_again(tmp_path: Path) -> None:
    process = gave_up(tmp_path, 3.0)
    try:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        until = time.monotonic() + 20
        while not Holder.parse((tmp_path / "lease" / "00000001.json").read_bytes()).is_released:
            assert time.monotonic() < until
            time.sleep(0.02)
    finally:
        process.communicate("\n")


def test_a_release_that_failed_leaves_the_lease_of_the_next_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chunkmill.engine.execution.lease._AGAIN", 0.05)
    first = Lease.take(tmp_path)
    with largest_file(0):
        first.release()
    with Lease.take(tmp_path) as second:
        time.sleep(0.2)
        second.check()


def test_on_a_full_disk_a_lease_is_renewed_and_released(disk: SmallDisk) -> None:
    lease = Lease.take(disk.folder, ttl_seconds=0.3)
    disk.fill()
    first = lease.holder
    time.sleep(0.5)
    lease.check()
    assert lease.holder.renewed > first.renewed
    lease.release()
    assert Holder.parse((disk.folder / "lease" / "00000001.json").read_bytes()).is_released
    assert files(disk.folder) == ["00000001.json"]


def test_a_lease_of_which_it_is_unknown_whether_it_was_taken_blocks_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsynced(_folder: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("chunkmill.engine.storage.folder.sync_folder", unsynced)
    with pytest.raises(WriteError, match="Input/output error"):
        Lease.take(tmp_path)
    monkeypatch.undo()
    assert Holder.parse((tmp_path / "lease" / "00000001.json").read_bytes()).is_released
    with Lease.take(tmp_path) as lease:
        assert lease.number == 2


def test_a_lease_whose_thread_cannot_start_blocks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(RuntimeError, match="new thread"):
        Lease.take(tmp_path)
    monkeypatch.undo()
    with Lease.take(tmp_path) as lease:
        assert lease.number == 2
