"""Datasets on the Hugging Face Hub, by a stand-in of the interface of its library."""

from __future__ import annotations

import fnmatch
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill import Chunk, LazyChunkStream, UsageError, push_lerobot, write_lerobot
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.errors import MissingExtraError, ReadError, WriteError
from chunkmill.engine.locations import without_folders
from chunkmill.readers import RrdReader
from click.testing import CliRunner

SPEC = {"fps": 10, "features": {"action": {"entity": "/arm"}}}
Files = dict[str, bytes]


class HubError(OSError):
    """What the library raises for an answer of the Hub."""


class RevisionNotFoundError(HubError):
    """There is no such tag."""


class Hub:
    """The Hub: commits of repositories, each all files, and tags, each the number of a commit."""

    def __init__(self) -> None:
        self.commits: dict[str, list[Files]] = {}
        self.tags: dict[str, dict[str, int]] = {}
        self.private: dict[str, bool | None] = {}
        self.refuses = ""

    def ask(self, call: str, repo_id: str, repo_type: str) -> None:
        assert repo_type == "dataset"
        if call == self.refuses:
            raise HubError(f"403 Client Error: {repo_id}")

    def files(self, repo_id: str) -> Files:
        return self.commits[repo_id][-1] if self.commits[repo_id] else {}

    def commit(self, repo_id: str, files: Files) -> None:
        if files != self.files(repo_id):  # as the library: without a change there is no commit
            self.commits[repo_id].append(files)

    # The interface.

    def create_repo(self, repo_id: str, *, private: bool | None, repo_type: str, exist_ok: bool) -> str:
        self.ask("create_repo", repo_id, repo_type)
        assert exist_ok
        self.private.setdefault(repo_id, private)
        self.commits.setdefault(repo_id, [])
        self.tags.setdefault(repo_id, {})
        return f"https://huggingface.co/datasets/{repo_id}"

    def file_exists(self, repo_id: str, filename: str, *, repo_type: str) -> bool:
        self.ask("file_exists", repo_id, repo_type)
        return filename in self.files(repo_id)

    def upload_file(self, *, path_or_fileobj: bytes, path_in_repo: str, repo_id: str, repo_type: str) -> None:
        self.ask("upload_file", repo_id, repo_type)
        self.commit(repo_id, {**self.files(repo_id), path_in_repo: path_or_fileobj})

    def upload_folder(
        self,
        *,
        repo_id: str,
        folder_path: str,
        commit_message: str,
        repo_type: str,
        allow_patterns: list[str],
        delete_patterns: list[str],
    ) -> None:
        self.ask("upload_folder", repo_id, repo_type)
        assert commit_message

        def fits(name: str, patterns: list[str]) -> bool:
            return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)

        paths = {str(p.relative_to(folder_path)): p for p in Path(folder_path).rglob("*") if p.is_file()}
        kept = {name: data for name, data in self.files(repo_id).items() if not fits(name, delete_patterns)}
        self.commit(repo_id, kept | {n: p.read_bytes() for n, p in paths.items() if fits(n, allow_patterns)})

    def delete_tag(self, repo_id: str, *, tag: str, repo_type: str) -> None:
        self.ask("delete_tag", repo_id, repo_type)
        if tag not in self.tags[repo_id]:
            raise RevisionNotFoundError(tag)
        del self.tags[repo_id][tag]

    def create_tag(self, repo_id: str, *, tag: str, repo_type: str) -> None:
        self.ask("create_tag", repo_id, repo_type)
        assert tag not in self.tags[repo_id]
        self.tags[repo_id][tag] = len(self.commits[repo_id])


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    """The stand-in, which takes the place of the library."""
    made = Hub()
    library, errors, utils = (ModuleType(f"huggingface_hub{name}") for name in ("", ".errors", ".utils"))

    def validate_repo_id(repo_id: str) -> None:
        if not repo_id or repo_id.count("/") > 1:
            raise ValueError("Repo id must be in the form 'repo_name' or 'namespace/repo_name'")

    library.HfApi = lambda library_name: made  # type: ignore[attr-defined]
    errors.RevisionNotFoundError = RevisionNotFoundError  # type: ignore[attr-defined]
    utils.validate_repo_id = validate_repo_id  # type: ignore[attr-defined]
    for module in (library, errors, utils):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return made


def recording(seconds: float) -> LazyChunkStream:
    ticks = (np.arange(round(seconds * 10) + 1) * 100_000_000).astype("datetime64[ns]")
    values = pa.array([[1.0]] * len(ticks), pa.list_(pa.float64()))
    return LazyChunkStream.from_iter(
        [Chunk.build("/arm", {"time": pa.array(ticks)}, [(ComponentDescriptor("v"), values)])]
    )


def write(where: Path, **recordings: LazyChunkStream) -> Path:
    write_lerobot(recordings, where, SPEC, executor="inline", append=True)
    return where


def test_a_dataset_is_on_the_hub_as_it_is_here(hub: Hub, tmp_path: Path) -> None:
    where = write(tmp_path / "set", a=recording(1))
    (where / "notes.txt").write_text("mine")
    assert push_lerobot(where, "me/set", private=True) == "https://huggingface.co/datasets/me/set"
    names = {str(p.relative_to(where)) for p in where.rglob("*") if p.is_file()} - {"notes.txt"}
    assert hub.files("me/set").keys() == names | {"README.md"}
    assert b"LeRobot" in hub.files("me/set")["README.md"]
    assert b"11 frames at 10 frames a second" in hub.files("me/set")["README.md"]
    assert (hub.tags["me/set"], hub.private["me/set"]) == ({"v3.0": 2}, True)
    assert not [data for data in hub.files("me/set").values() if str(tmp_path).encode() in data]


def test_a_later_push_is_one_commit_and_moves_the_tag(hub: Hub, tmp_path: Path) -> None:
    where = write(tmp_path / "set", a=recording(1))
    push_lerobot(where, "me/set")
    push_lerobot(where, "me/set")
    assert len(hub.commits["me/set"]) == 2
    hub.commit("me/set", {**hub.files("me/set"), "README.md": b"my card", "data/chunk-000/file-009.parquet": b"old"})
    write(where, b=recording(2))
    push_lerobot(where, "me/set")
    assert (len(hub.commits["me/set"]), hub.tags["me/set"]) == (4, {"v3.0": 4})
    assert hub.files("me/set")["README.md"] == b"my card"
    assert "data/chunk-000/file-009.parquet" not in hub.files("me/set")


def test_no_path_of_this_machine_is_published(hub: Hub, tmp_path: Path) -> None:
    """Not in the reason of a recording that was skipped, and not as the name of one."""
    place = tmp_path / "my bags" / "cut.rrd"
    place.parent.mkdir()
    recording(1).write_rrd(place, application_id="t", recording_id="a", executor="inline")
    streams = {"a": recording(1), "b": RrdReader(place).stream()}
    place.write_bytes(place.read_bytes()[:-300])
    report = write_lerobot(streams, tmp_path / "set", SPEC, executor="inline", on_error="skip")
    (reason,) = [account.reason for account in report.accounts if account.reason]
    assert reason.startswith("CM101: cut.rrd: ")
    push_lerobot(tmp_path / "set", "me/set")
    assert not [name for name, data in hub.files("me/set").items() if str(tmp_path).encode() in data]
    assert b"cut.rrd" in hub.files("me/set")["meta/chunkmill.json"]
    write_lerobot({str(place): recording(1)}, tmp_path / "named", SPEC, executor="inline")
    with pytest.raises(UsageError, match=r"names a path of this machine, which the Hub would publish: .*cut\.rrd"):
        push_lerobot(tmp_path / "named", "me/named")
    assert "me/named" not in hub.commits
    (tmp_path / "named/meta/chunkmill.json").write_text("[]")
    with pytest.raises(ReadError, match="is damaged"):
        push_lerobot(tmp_path / "named", "me/named")


def test_only_paths_that_are_here_are_shortened(tmp_path: Path) -> None:
    (tmp_path / "a.bag").write_bytes(b"")
    text = "{0}/a.bag: no '{0}/gone.bag' (at byte 3), {0}/a.bag. file://{0}/a.bag"
    short = "a.bag: no 'gone.bag' (at byte 3), a.bag. a.bag"
    assert without_folders(text.format(tmp_path)) == short
    assert without_folders(f"{tmp_path}/my bags/x y.bag: cut", f"{tmp_path}/my bags/x y.bag") == "x y.bag: cut"
    for same in (
        "there is nothing at /arm/joint; it has /robot/left/arm, s3://fleet/tmp/a.bag",
        "data/a.bag",
        "1/2 /tf",
    ):
        assert without_folders(same, "s3://fleet/a.bag", None) == same


@pytest.mark.parametrize("call", ["create_repo", "file_exists", "upload_file", "upload_folder", "create_tag"])
def test_what_was_cut_is_repeated(call: str, hub: Hub, tmp_path: Path) -> None:
    where = write(tmp_path / "set", a=recording(1))
    hub.refuses = call
    with pytest.raises(WriteError, match=r"me/set: was not pushed: 403 Client Error.*push it again"):
        push_lerobot(where, "me/set")
    hub.refuses = ""
    push_lerobot(where, "me/set")
    assert hub.tags["me/set"] == {"v3.0": 2}


def test_what_cannot_be_pushed(hub: Hub, tmp_path: Path) -> None:
    for name in ("set", "a/b/c", ""):
        with pytest.raises(UsageError, match="is not a valid name on the Hub"):
            push_lerobot(tmp_path, name)
    with pytest.raises(ReadError, match="is not a LeRobot dataset"):
        push_lerobot(tmp_path, "me/set")
    assert not hub.commits


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"needs huggingface_hub.*\.\[hub\]"):
        push_lerobot(tmp_path, "me/set")


def test_the_command(hub: Hub, tmp_path: Path) -> None:
    recording(1).write_rrd(tmp_path / "a.rrd", application_id="t", recording_id="a", executor="inline")
    (tmp_path / "spec.yaml").write_text(json.dumps(SPEC))
    given = ["export", "lerobot", str(tmp_path / "spec.yaml"), str(tmp_path / "a.rrd"), "-o", str(tmp_path / "set")]

    def run(*more: str) -> Any:
        return CliRunner().invoke(commands, [*given, "--executor", "inline", *more])

    done = run("--push", "nobody")
    assert (done.exit_code, (tmp_path / "set").exists()) == (2, False), done.output
    done = run("--push", "me/set")
    assert (done.exit_code, "set -> https://huggingface.co/datasets/me/set" in done.stderr) == (0, True), done.output
    done = run("--push", "me/set", "--append", "--json")
    assert json.loads(done.stdout)["pushed"] == "https://huggingface.co/datasets/me/set"
    assert len(hub.commits["me/set"]) == 2
