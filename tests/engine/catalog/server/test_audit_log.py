"""The audit log: it says exactly what was changed, by whom; it has no secrets, and its lines are whole."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from calls_of_tokens import Reached
from chunkmill.engine.catalog import CatalogClient, DatasetEntry, EntryId
from chunkmill.engine.catalog.segments import SegmentProperties
from chunkmill.engine.catalog.server import LogOptions, Status
from chunkmill.engine.catalog.server.call_log import LogFile
from chunkmill.engine.catalog.server.protocol import entry_id_message, entry_id_of, part_of, schema_message
from served import recording

SCHEMA = pa.schema(
    [pa.field("key", pa.int64(), False, {"rerun:is_table_index": "true"}), pa.field("word", pa.string())]
)


def lines(folder: Path, name: str = "audit.jsonl") -> list[dict[str, Any]]:
    """All lines of a log, those of rotated files first."""
    paths = sorted(folder.glob(f"{name}.[0-9]*"), key=lambda path: -int(path.suffix[1:]))
    return [json.loads(line) for path in [*paths, folder / name] if path.exists() for line in path.open()]


def rows(*keys: int) -> pa.Table:
    return pa.table({"key": list(keys), "word": [f"word {key}" for key in keys]}, SCHEMA)


# --- a program that replays it


def replayed(log: list[dict[str, Any]]) -> dict[str, Any]:
    """The catalog that follows from a log: of each entry its name, kind, layers, rows and properties."""
    entries: dict[str, dict[str, Any]] = {}
    for line in log:
        changed, own = line.get("changed", {}), entries.get(line["entry"] or "", {})
        for made in changed.get("created", ()):
            entries[made["id"]] = {
                "name": made["name"],
                "kind": made["kind"],
                "layers": {},
                "properties": {},
                "rows": 0,
            }
        if "rows" in changed:
            entries[line["entry"]]["rows"] = changed["rows"]
        for segment, layer, url in changed.get("registered", ()):
            if changed["on_duplicate"] != "skip" or (segment, layer) not in own["layers"]:
                own["layers"][segment, layer] = url
        for segment, layer in changed.get("removed", ()):
            del own["layers"][segment, layer]
        if "revision" in changed:
            own["properties"][changed["segment"]] = changed["revision"]
        for segment in changed.get("deleted_properties", ()):
            own["properties"].pop(segment, None)
        if "renamed" in changed:
            assert own["name"] == changed["renamed"]["from"]
            own["name"] = changed["renamed"]["to"]
        for gone in changed.get("deleted", ()):
            del entries[gone]
    return entries


def stored(lake: Path) -> dict[str, Any]:
    """The same of the catalog itself."""
    found = {}
    for entry in CatalogClient(lake).entries(include_hidden=True):
        if entry.name == "__entries":
            continue
        state: dict[str, Any] = {"name": entry.name, "kind": entry.kind.name.lower(), "layers": {}}
        state |= {"properties": {}, "rows": 0}
        if isinstance(entry, DatasetEntry):
            for live in entry.store_reader().live():
                url = Path(live.source).as_uri() if live.in_place else None
                state["layers"][live.recording_id, live.layer] = url
            for segment in {key[0] for key in state["layers"]} | {"one", "two", "three"}:
                properties = SegmentProperties(entry).of(segment)
                if properties.row is not None:
                    state["properties"][segment] = properties.revision
        else:
            state["rows"] = entry.snapshot().count()
        found[str(entry.id)] = state
    return found


class Driver:
    """Random calls by random tokens; ``ended`` is what became of each."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.reached = Reached(folder / "lake", LogOptions(most_bytes=40_000, most_files=100))
        self.names = ["drives", "labels", "other", "mine", "more", "words", "rows"]
        self.holders = {
            "writer": ("read", "write"),
            "reader": ("read",),
            "labeler": ("read", "write:labels", "write:mine"),
            "driver": ("read:labels", "write:drives"),
            "guest": ("read:other",),
        }
        self.tokens = {name: self.reached.token(*given, subject=name) for name, given in self.holders.items()}
        self.files = []
        for name in self.names:
            for segment in ("one", "two", "three"):
                place = folder / "lake" / "uploads" / name / f"{segment}.rrd"
                place.parent.mkdir(parents=True, exist_ok=True)
                recording(folder, segment).rename(place)
                self.files.append(place.as_uri())
        self.ids: dict[str, list[str]] = {"dataset": [], "table": [], "none": [str(EntryId.new())]}
        self.ended: list[tuple[str, str, str]] = []

    def step(self) -> None:
        holder = self.random.choice([*self.tokens, "writer", "writer", "writer"])
        name, entry, fields = self.wanted()
        requests = fields.pop("requests", None)
        answer = self.reached.call(self.tokens[holder], name, entry, requests, **fields)
        assert answer.status is not Status.INTERNAL, (name, answer.text)
        self.ended.append((holder, name, answer.status.name))
        for message in answer.messages:
            if name == "CreateDatasetEntry":
                self.ids["dataset"].append(str(entry_id_of(message.dataset.details.id)))
            elif name == "CreateTableEntry":
                self.ids["table"].append(str(entry_id_of(message.table.details.id)))
            elif name == "DeleteEntry":
                for ids in self.ids.values():
                    ids[:] = [id_ for id_ in ids if id_ != str(entry_id_of(fields["id"]))] if len(ids) > 1 else ids

    def wanted(self) -> tuple[str, str | None, dict[str, Any]]:
        some, segment = self.random.choice, self.random.choice(["one", "two", "three"])
        none = self.ids["none"]
        entry, table_id = some([*self.ids["dataset"] * 9, *none]), some([*self.ids["table"] * 9, *none])
        id_ = entry_id_message(EntryId(some([entry, table_id])))
        name = some(self.names)
        files = self.random.sample(self.files, self.random.randint(1, 3))
        sources = [{"storage_url": url, "typ": 1, "layer": some(["base", "more"])} for url in files]
        ids = [{"id": segment}]
        row_id = entry_id_message(EntryId(table_id))
        table = {"dataframe_part": part_of(rows(*self.random.sample(range(9), 3))), "insert_mode": some([1, 2, 3, 4])}
        properties = part_of(pa.record_batch({"speed": [self.random.random()]}))
        return some(
            [
                ("CreateDatasetEntry", None, {"name": name}),
                ("CreateTableEntry", None, {"name": name, "schema": schema_message(SCHEMA)}),
                *[("RegisterWithDataset", entry, {"data_sources": sources, "on_duplicate": some([1, 2, 3])})] * 6,
                ("UnregisterFromDataset", entry, {"segments_to_drop": ids}),
                ("UnregisterFromDataset", entry, {"layers_to_drop": ["more"]}),
                *[("WriteTable", table_id, {"requests": [table]})] * 5,
                ("SetSegmentProperties", entry, {"segment_id": ids[0], "properties": properties}),
                ("DeleteSegmentProperties", entry, {"segments": [{"segment_id": ids[0]}]}),
                *[("UpdateEntry", None, {"id": id_, "entry_details_update": {"name": some([name, f"{name}_2"])}})] * 3,
                ("DeleteEntry", None, {"id": id_}),
                ("ScanSegmentTable", entry, {}),
                ("ScanTable", None, {"table_id": row_id}),
                ("FindEntries", None, {}),
            ]
        )


@pytest.mark.heavy
def test_a_program_that_replays_it_gets_the_same_catalog(tmp_path: Path) -> None:
    """Of 1,000 random calls of five tokens, over several files of the log."""
    driver = Driver(tmp_path, seed=int(os.environ.get("SEED", "1")))
    for _ in range(1000):
        driver.step()
    log = lines(tmp_path / "lake" / ".serve")
    found = stored(tmp_path / "lake")
    assert replayed(log) == found
    counts = Counter(word for line in log for word in line.get("changed", {}))
    some = ("created", "deleted", "renamed", "registered", "removed", "mode", "revision", "deleted_properties")
    assert min(counts[word] for word in some) >= 5, counts
    methods = driver.reached.service.methods.values()
    writing = {method.name for method in methods if method.writes}
    told = [(line["subject"], line["method"], line["status"]) for line in log]
    assert [call for call in told if call[1] in writing] == [call for call in driver.ended if call[1] in writing]
    for call in driver.ended:
        if call[2] == "PERMISSION_DENIED":
            assert call in told
    assert {"OK", "PERMISSION_DENIED", "NOT_FOUND", "ALREADY_EXISTS"} <= {call[2] for call in told}
    assert {call[0] for call in told if call[2] == "OK"} == {"writer", "labeler", "driver"}
    assert len(list((tmp_path / "lake" / ".serve").glob("audit.jsonl.*"))) > 3
    assert all(line["client"] == "192.0.2.7" and line["seconds"] >= 0 and line["token"] for line in log)


# --- secrets


def test_no_secret_is_in_a_log(tmp_path: Path) -> None:
    """In headers, URLs, names and content."""
    logs = LogOptions(access=str(tmp_path / "access.jsonl"))
    reached = Reached(tmp_path / "lake", logs)
    writer = reached.token("read", "write")
    planted = ["PLANTED", writer, writer.partition(".")[2]]
    made = reached.call(writer, "CreateDatasetEntry", name="drives", headers={"x-secret": "PLANTED-in-a-header"})
    dataset = entry_id_of(made.messages[0].dataset.details.id)
    for url in (
        "https://user:PLANTED@127.0.0.1:1/a.rrd",
        "https://127.0.0.1:1/a.rrd?X-Amz-Signature=PLANTED",
        "s3://user:PLANTED@bucket/key#PLANTED",
        f"file:///tmp/{writer}",
    ):
        reached.call(writer, "RegisterWithDataset", dataset, data_sources=[{"storage_url": url, "typ": 1}])
    reached.call(writer, "CreateDatasetEntry", name=writer[:150])
    reached.call(writer, "ReadDatasetEntry", headers={"x-rerun-entry-name-bin": writer})
    reached.call(writer + "PLANTED", "DeleteEntry", dataset)
    reached.call(None, "DeleteEntry", dataset, headers={"authorization": "Basic PLANTED"})
    reached.call(writer, "CreateTableEntry", name="words", schema=schema_message(SCHEMA))
    (table,) = CatalogClient(tmp_path / "lake").tables()
    part = part_of(pa.table({"key": [1], "word": ["PLANTED"]}, SCHEMA))
    assert reached.call(writer, "WriteTable", table.id, dataframe_part=part).status is Status.OK
    properties = part_of(pa.record_batch({"PLANTED": ["PLANTED"]}))
    reached.call(writer, "SetSegmentProperties", dataset, segment_id={"id": "one"}, properties=properties)
    place = tmp_path / "lake" / "uploads" / "one.rrd"
    place.parent.mkdir()
    recording(tmp_path, "one").rename(place)
    source = {"storage_url": place.as_uri(), "typ": 1}
    assert reached.call(writer, "RegisterWithDataset", dataset, data_sources=[source]).status is Status.OK
    written = [tmp_path / "access.jsonl", *(tmp_path / "lake" / ".serve").glob("*.jsonl")]
    assert len(written) == 3
    for path in written:
        text = path.read_text()
        assert text and not [secret for secret in planted if secret in text], path.name
    assert any("registered" in line.get("changed", {}) for line in lines(tmp_path / "lake" / ".serve"))
    assert len(lines(tmp_path, "access.jsonl")) == 13


def test_callers_without_a_token_push_nothing_out(tmp_path: Path) -> None:
    reached = Reached(tmp_path / "lake", LogOptions(most_bytes=2000, most_files=2))
    reached.call(reached.token("write"), "CreateDatasetEntry", name="drives")
    revoked = reached.token("write", subject="gone")
    (record,) = (record for record in reached.tokens.records() if record.subject == "gone")
    reached.tokens.revoke(record.id)
    for _ in range(50):
        reached.call("nonsense", "CreateDatasetEntry", name="drives")
        assert reached.call(revoked, "FindEntries").status is Status.UNAUTHENTICATED
    folder = tmp_path / "lake" / ".serve"
    assert [line["subject"] for line in lines(folder)] == ["tests"]
    refused = lines(folder, "audit-refused.jsonl")
    assert {(line["subject"], line["token"]) for line in refused} == {(None, None), ("gone", record.id)}
    assert 0 < len(refused) < 100


# --- whole lines


def test_a_line_that_was_cut_is_absent(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = LogFile(path)
    log.append(b'{"a":1}\n')
    with path.open("ab") as file:  # a process that is killed while it writes
        file.write(b'{"a":')
    log.append(b'{"a":2}\n')
    assert path.read_bytes() == b'{"a":1}\n{"a":2}\n'
    path.write_bytes(b"x" * 100_000)
    LogFile(path).append(b"{}\n")
    assert path.read_bytes() == b"{}\n"


def test_what_does_not_fit_leaves_no_part_and_writes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk that is full after some bytes of a line; later it has room, and no line is lost."""
    reached = Reached(tmp_path / "lake")
    writer = reached.token("write")
    assert reached.call(writer, "CreateDatasetEntry", name="first").status is Status.OK
    write, room = os.write, 10

    def full(handle: int, data: Any) -> int:
        nonlocal room
        if not room:
            raise OSError(28, "No space left on device")
        count = write(handle, bytes(data)[:room])
        room -= count
        return count

    with monkeypatch.context() as patched:
        patched.setattr("chunkmill.engine.catalog.server.call_log.os.write", full)
        assert reached.call(writer, "CreateDatasetEntry", name="second").status is Status.OK
        refused = reached.call(writer, "CreateDatasetEntry", name="third")
        assert (refused.status, "audit log cannot be written" in refused.text) == (Status.UNAVAILABLE, True)
        assert reached.call(writer, "FindEntries").status is Status.OK
        assert len(lines(tmp_path / "lake" / ".serve")) == 1
    assert [text for text in caplog.messages if "the audit log" in text and "No space left" in text]
    assert reached.call(writer, "CreateDatasetEntry", name="fourth").status is Status.OK
    log = lines(tmp_path / "lake" / ".serve")
    assert [line["status"] for line in log] == ["OK", "OK", "UNAVAILABLE", "OK"]
    assert replayed(log) == stored(tmp_path / "lake")


def _write(path: Path, name: str) -> None:
    log = LogFile(path, 3000, 1000)
    for number in range(200):
        log.append(json.dumps({"name": name, "number": number}).encode() + b"\n")


def test_processes_share_a_file_while_it_is_rotated(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    writers = [context.Process(target=_write, args=(tmp_path / "log", str(number))) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    written = lines(tmp_path, "log")
    assert len(written) == 800
    for name in "0123":
        assert [line["number"] for line in written if line["name"] == name] == list(range(200))
    assert all(path.stat().st_size <= 3000 for path in tmp_path.glob("log*"))


def test_so_many_files_are_kept(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "log", 100, 3)
    for number in range(100):
        log.append(b'{"number":%d}\n' % number)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "log.1", "log.2", "log.lock"]
    numbers = [line["number"] for line in lines(tmp_path, "log")]
    assert numbers == list(range(numbers[0], 100))
    once = LogFile(tmp_path / "one", 20, 1)
    for _ in range(5):
        once.append(b'{"number":1}\n')
    assert len(lines(tmp_path, "one")) == 1
