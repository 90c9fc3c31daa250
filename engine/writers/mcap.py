"""``write_mcap``: streams of recordings become one MCAP, by copies of their messages or by messages made of chunks.

1. Messages without an index, and those made of chunks, are first written as sorted **runs** in the staging folder,
   with a task for each part of the input.
2. All messages are divided into **windows** of log time, by the times of the input's chunks and of runs. Each window
   has a task that reads its messages, sorts them, and writes compressed chunks with their indexes into a part.
3. The commit joins the parts in the order of the windows, between the header with all channels and the summary.
"""

from __future__ import annotations

import io
import json
import time
from base64 import b64decode, b64encode
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chunk import minting
from ..errors import UsageError, writing
from ..execution import (
    Body,
    Note,
    Packed,
    Progress,
    Ran,
    RunOptions,
    RunStart,
    Stage,
    Staging,
    Task,
    TaskRun,
    check_target,
    executor_name,
    finished_report,
    progress_shown,
    raise_failure,
    replace_file,
    warn_of,
)
from ..faults import reach
from ..limits import MIB
from ..locations import located
from ..rrd import Output, open_positional
from ..storage import ObjectUrl
from ..storage.folder import Folder
from ..stream import (
    CompressedChunk,
    CopiedRecords,
    ExtraPlace,
    LazyChunkStream,
    Node,
    Plan,
    RecordChannel,
    RecordFacts,
    RecordOutline,
    Records,
    RecordSchema,
    RecordSource,
    RecordUnit,
    compile_plan,
    copied_records,
    executor_of,
    explain_plan,
    other_sources,
    sink_of,
    source_records,
    task_plan,
    warn_of_nothing,
)
from ..task_context import READ, WRITE, phase, timed
from ..units import counted
from .mcap_chunks import (
    COMPRESSIONS,
    SORT_BYTES,
    McapChunkWriter,
    MessageRun,
    Order,
    RecordStretch,
    RunWriter,
    TimeWindow,
    compacted,
    packed_units,
    read_run,
    renumbered,
    windows_of,
)
from .mcap_file import ChannelNumbers, McapAssembly
from .mcap_messages import KEPT, EntityFacts, MessageMaker

if TYPE_CHECKING:
    import os

    from ..locations import Location
    from ..reports import RunReport

CHUNK_BYTES: Final = 4 * MIB
"""The default uncompressed bytes of a written chunk."""

_RUN_BYTES: Final = MIB
_PART: Final = ".records"
_FACTS: Final = ".facts"
_NAME: Final = "commit.mcap"
_COPIED: Final = "records are copied unchanged"
_MADE: Final = "messages are made of chunks"


def write_mcap(
    stream: LazyChunkStream,
    path: str | os.PathLike[str],
    *,
    sort: bool = True,
    compression: str | None = None,
    chunk_bytes: int = CHUNK_BYTES,
    executor: str | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    progress: Progress = None,
) -> RunReport:
    """Write a stream as one MCAP: chunked, indexed, with CRCs and statistics.

    Guarantee: the file appears complete or not at all. Until then an existing file with this name is kept. Each
    selected message of the sources is written once. If all sources are MCAPs, bags or rosbag2, and only merges and
    filters of entities follow them, records are copied unchanged: topic, times, sequence, bytes, schema, metadata of
    the channel, attachments and metadata. Readers' options select times and topics; a topic is kept if a filter keeps
    an entity of its messages. Otherwise messages are made of the chunks. The report's plan shows which of the two was
    done. ``recover=True`` of a reader repairs a damaged MCAP or bag.

    Parameters
    ----------
    sort
        Whether to order messages by log time; messages of the same time are in the order of the sources. A task sorts
        up to 512 MiB in memory. If false, messages are in the order of the sources, and fully selected chunks of a
        single MCAP are copied without decompression.
    compression
        ``"zstd"`` (the default), ``"lz4"`` or ``"none"``. If not given, copied chunks keep their compression.
    chunk_bytes
        The bytes of a chunk before compression. A larger message gets its own chunk.

    Raises
    ------
    ReadError
        A source is damaged; the message names file and byte.
    WriteError, NoSpaceError
        The destination cannot be written.
    UsageError
        An option is invalid, or there are too many messages with the same log time to sort them.
    """
    if compression is not None and compression not in COMPRESSIONS:
        raise UsageError(f"compression must be one of {', '.join(COMPRESSIONS)}, not {compression!r}")
    if not 1024 <= chunk_bytes <= SORT_BYTES:
        raise UsageError(f"chunk_bytes must be from 1,024 to {SORT_BYTES:,}, not {chunk_bytes:,}")
    start = RunStart()
    sink, place = sink_of(stream), located(path)
    copied = copied_records(sink)
    choices = _Choices(sort, compression, chunk_bytes, str(place))
    with progress_shown(progress, str(path)) as listener:
        options = RunOptions(executor_of(executor, sink), master, conf, listener, start)
        if copied is None:
            is_inline = executor_name(options.executor) == "inline"
            plan = compile_plan(sink) if is_inline else task_plan(stream)
            warn_of_nothing(plan)
            check_target(place, plan.source_paths)
            return _Writing(place, choices, options).make(plan, sink)
        check_target(place, lambda: [file.records.path for file in copied])
        return _Writing(place, choices, options).copy([_Input.of(file, sort=sort) for file in copied])


class _Choices(NamedTuple):
    """The caller's options, and the name of the destination."""

    sort: bool
    compression: str | None
    chunk_bytes: int
    destination: str


@dataclass(frozen=True, slots=True)
class _Input:
    """A file whose messages are copied, with its outline. With ``runs``, its messages are first written as runs."""

    file: CopiedRecords
    outline: RecordOutline
    runs: bool

    @classmethod
    def of(cls, file: CopiedRecords, *, sort: bool) -> _Input:
        """Make an input of a file: runs are needed if its index does not give the places or times of messages."""
        outline = file.records.outline()
        runs = not outline.is_complete or (sort and any(unit.start is None for unit in outline.units))
        return cls(file, outline, runs)


class _Messages(NamedTuple):
    """Messages of an input, as they are read for windows. ``facts`` has their channels, ``wanted`` the channels' ids.

    If they are ``static``, they get the first log time of the other messages.
    """

    input: int
    records: RecordSource
    facts: RecordFacts
    units: tuple[RecordUnit, ...]
    wanted: tuple[int, ...]
    static: bool = False


class _Writing:
    """One execution: its stages, and its commit."""

    def __init__(self, place: Location, choices: _Choices, options: RunOptions) -> None:
        self._place = place
        self._choices = choices
        self._options = options
        self._shown: set[str] = set()
        self._warnings: list[Note] = []

    def copy(self, inputs: list[_Input]) -> RunReport:
        """Copy the messages of files."""
        if not self._choices.sort and len(inputs) == 1 and (chunks := self._stored(inputs[0])) is not None:
            return self._pass_on(inputs[0], chunks)
        with Staging.beside(self._place) as staging:
            while True:
                messages = self._messages(inputs, staging)
                units = [(n, unit) for n, each in enumerate(messages) for unit in each.units]
                strict = not all(each.runs for each in inputs)
                windows = windows_of(units, by_time=self._choices.sort, strict=strict)
                if windows is None:
                    inputs = [replace(each, runs=True) for each in inputs]
                    continue
                numbers = ChannelNumbers()
                if len(messages) == 1 and not inputs[0].runs:
                    numbers.keep(messages[0].facts, messages[0].wanted)
                    sources = [_Copied(messages[0].records, tuple((i, i) for i in messages[0].wanted))]
                else:
                    sources = _renumbered(messages, numbers)
                self._explain(_explained(inputs, windows, sort=self._choices.sort))
                ran, outcomes = self._write(sources, windows, staging)
                wrong = {messages[source].input for outcome in outcomes for source in outcome["wrong"]}
                if not wrong:
                    extras = _extras(inputs, messages)
                    return self._commit(ran, outcomes, numbers, _profile(inputs, numbers), extras, staging)
                inputs = [replace(each, runs=each.runs or n in wrong) for n, each in enumerate(inputs)]

    def make(self, plan: Plan, sink: Node) -> RunReport:
        """Make messages of the chunks of a plan."""
        entities, inputs = _entity_facts(sink)
        with Staging.beside(self._place) as staging:
            self._explain(f"MCAP: {_MADE}, of\n{explain_plan(sink, plan)}")
            body = _MadeBody(plan, entities, self._choices)
            outcomes = self._outcomes(body, plan.tasks, staging)[1]
            statics = [_messages_of(0, o["static"], staging) for o in outcomes if o["static"]]
            messages = [_messages_of(0, outcome["name"], staging) for outcome in outcomes]
            start = min((unit.start or 0 for each in messages for unit in each.units), default=0)
            messages = [*(_at_time(each, start) for each in statics), *messages]
            units = [(n, unit) for n, each in enumerate(messages) for unit in each.units]
            windows = windows_of(units, by_time=self._choices.sort, strict=False) or []
            numbers = ChannelNumbers()
            sources = _renumbered(messages, numbers, start)
            ran, outcomes = self._write(sources, windows, staging)
            assert not any(outcome["wrong"] for outcome in outcomes)
            extras = [(file, file.records.outline().facts) for file in inputs]
            return self._commit(ran, outcomes, numbers, _profile([], numbers), extras, staging)

    def _explain(self, plan: str) -> None:
        self._options = replace(self._options, start=self._options.start.planned(plan))

    def _messages(self, inputs: Sequence[_Input], staging: Staging) -> list[_Messages]:
        """Return the messages of all inputs; those without an index are written as runs before."""
        packs = [
            (n, tuple(unit for _, unit in pack))
            for n, each in enumerate(inputs)
            if each.runs
            for pack in packed_units([(n, unit) for unit in each.outline.units])
        ]
        spooled: dict[int, list[_Messages]] = {}
        if packs:
            body = _SpoolBody(tuple(each.file for each in inputs), Packed(packs), self._choices)
            tasks = [Task(i, pack[0].split.label, sum(u.size for u in pack)) for i, (_, pack) in enumerate(packs)]
            for outcome, (n, _) in zip(self._outcomes(body, tasks, staging)[1], packs, strict=True):
                spooled.setdefault(n, []).append(_messages_of(n, outcome["name"], staging))
        messages = []
        for n, each in enumerate(inputs):
            if each.runs:
                messages += spooled.get(n, [])
            else:
                facts = each.outline.facts
                wanted = tuple(i for i, channel in facts.channels.items() if each.file.wants(channel))
                messages.append(_Messages(n, each.file.records, facts, each.outline.units, wanted))
        return messages

    def _outcomes(self, body: Body, tasks: Sequence[Task], staging: Staging) -> tuple[Ran, list[dict[str, Any]]]:
        ran = Stage(body, tasks, staging, destination=self._choices.destination).run(self._options)
        raise_failure(ran.notes)
        warn_of(ran.notes, self._shown)
        self._warnings += [note for note in ran.notes if note.kind == "warning"]
        return ran, [outcome for outcome in ran.outcomes() if not isinstance(outcome, Exception)]

    def _write(
        self, sources: Sequence[_Copied], windows: Sequence[TimeWindow], staging: Staging
    ) -> tuple[Ran, list[dict[str, Any]]]:
        """Write the chunks of windows."""
        body = _WindowBody(tuple(sources), Packed(windows), self._choices)
        tasks = [Task(n, f"window {n + 1}/{len(windows)}", window.size) for n, window in enumerate(windows)]
        return self._outcomes(body, tasks, staging)

    def _commit(
        self,
        ran: Ran,
        outcomes: Sequence[Mapping[str, Any]],
        numbers: ChannelNumbers,
        profile: str,
        extras: Sequence[tuple[CopiedRecords, RecordFacts]],
        staging: Staging,
    ) -> RunReport:
        """Join the parts of windows, in their order."""
        began = time.perf_counter()
        compression = (self._choices.compression or "zstd").replace("none", "")
        with _committed(self._place, staging) as out:
            assembly = McapAssembly(out, numbers, profile)
            for outcome in outcomes:
                chunks, indexes = _read_facts(staging.folder.get(outcome["name"] + _FACTS))
                assembly.part(staging.folder.place(outcome["part"]), outcome["bytes"], chunks, indexes, compression)
            for file, facts in extras:
                assembly.extras(file, facts)
            assembly.finish()
        ran = replace(ran, notes=[*self._warnings, *(note for note in ran.notes if note.kind != "warning")])
        return finished_report(ran, self._place, out.position, time.perf_counter() - began, self._options)

    def _stored(self, given: _Input) -> list[CompressedChunk] | None:
        """Return the chunks of the only file, if all can be copied as they are."""
        if not given.outline.is_complete or not all(map(given.file.wants, given.outline.facts.channels.values())):
            return None
        chunks = given.file.records.stored()
        wanted = self._choices.compression
        name = None if wanted is None else wanted.replace("none", "")
        if chunks is None or any(name is not None and chunk.compression != name for chunk in chunks):
            return None
        return chunks

    def _pass_on(self, given: _Input, chunks: Sequence[CompressedChunk]) -> RunReport:
        """Copy chunks as they are stored."""
        began = time.perf_counter()
        facts, numbers = given.outline.facts, ChannelNumbers()
        numbers.keep(facts, facts.channels)
        start = self._options.start.planned(f"MCAP: {_COPIED}, whole chunks, from {given.file.records.path}")
        with Staging.beside(self._place) as staging, _committed(self._place, staging) as out:
            assembly = McapAssembly(out, numbers, given.outline.profile or "")
            assembly.stored(given.file.records.path, chunks)
            assembly.extras(given.file, facts)
            assembly.finish()
        options, listener = replace(self._options, start=start, progress=None), self._options.progress
        seconds = time.perf_counter() - began
        size = sum(chunk.length + chunk.index_length for chunk in chunks)
        report = replace(
            finished_report(Ran([], [], []), self._place, out.position, seconds, options),
            rows=assembly.messages,
            chunks=len(chunks),
            splits=1,
            bytes_in=size,
            bytes_passed=size,
        )
        if listener is not None:
            listener.finished(report)
        return report


def _explained(inputs: Sequence[_Input], windows: Sequence[TimeWindow], *, sort: bool) -> str:
    """The plan as text."""
    order = "sorted by log time" if sort else "in the order of the input"
    lines = [f"MCAP: {_COPIED}, {order}, in {counted(len(windows), 'window')}"]
    for each in inputs:
        how = "written as runs first, because its index does not describe all messages" if each.runs else "by its index"
        lines.append(f"  {each.file.records.path}: {counted(len(each.outline.units), 'unit')}, {how}")
    return "\n".join(lines)


def _renumbered(messages: Sequence[_Messages], numbers: ChannelNumbers, start: int = 0) -> list[_Copied]:
    """Return sources with new channel ids; static messages get the log time ``start``."""
    sources = []
    for each in messages:
        ids = tuple((i, numbers.add(each.facts.channels[i])) for i in each.wanted)
        sources.append(_Copied(each.records, ids, start if each.static else None))
    return sources


def _at_time(messages: _Messages, start: int) -> _Messages:
    """Return static messages with a log time."""
    units = tuple(replace(unit, start=start, end=start) for unit in messages.units)
    return messages._replace(units=units, static=True)


def _extras(inputs: Sequence[_Input], messages: Sequence[_Messages]) -> list[tuple[CopiedRecords, RecordFacts]]:
    """Return the attachments and metadata of each input, each once."""
    extras = []
    for n, each in enumerate(inputs):
        some = [each.outline.facts, *(own.facts for own in messages if own.input == n)]
        attachments = dict.fromkeys(place for facts in some for place in facts.attachments)
        metadata = dict.fromkeys(place for facts in some for place in facts.metadata)
        extras.append((each.file, RecordFacts(attachments=list(attachments), metadata=list(metadata))))
    return extras


def _entity_facts(sink: Node) -> tuple[EntityFacts, list[CopiedRecords]]:
    """Return the facts about entities of the sources, and the files, which may have attachments and metadata."""
    entities, files = EntityFacts({}, {}, {}), []
    for file in source_records(sink):
        facts = file.records.outline().facts
        files.append(file)
        for channel in facts.channels.values():
            for entity in file.records.entities(channel):
                entities.channels.setdefault(entity, channel)
    for stream in other_sources(sink):
        for chunk in stream.filter(components=KEPT).to_chunks(executor="inline"):
            entities.add(chunk)
    return entities, files


def _profile(inputs: Sequence[_Input], numbering: ChannelNumbers) -> str:
    """Return the profile of all inputs, by their channels if no input has one; "" if profiles differ."""
    profiles = {each.outline.profile for each in inputs if each.outline.profile is not None}
    if profiles:
        return profiles.pop() if len(profiles) == 1 else ""
    kinds = {(c.message_encoding, c.schema.encoding if c.schema else "") for c in numbering.channels.values()}
    if kinds and kinds <= {("cdr", "ros2msg"), ("cdr", "ros2idl")}:
        return "ros2"
    return "ros1" if kinds == {("ros1", "ros1msg")} else ""


@contextmanager
def _committed(place: Location, staging: Staging) -> Iterator[Output]:
    """Yield an output. It appears at its place when the block ends, complete and on disk, or not at all."""
    with writing(str(place)):
        folder = Folder.at(place.parent) if isinstance(place, ObjectUrl) else staging.folder
        new = folder.new(place.name if isinstance(place, ObjectUrl) else _NAME)
        try:
            out = Output(new.file, str(place))
            yield out
            out.sync()
            reach("mcap.write", getattr(new.file, "name", None))
            new.finish()
        except BaseException:
            new.discard()
            raise
        if not isinstance(place, ObjectUrl):
            replace_file(staging.local / _NAME, place)
        reach("mcap.rename")


@dataclass(frozen=True, slots=True)
class _SpoolBody(Body):
    """Writes messages of files as runs, a task for each pack of units."""

    files: tuple[CopiedRecords, ...]
    packs: Sequence[tuple[int, tuple[RecordUnit, ...]]]
    choices: _Choices

    def label(self, index: int) -> str:
        """The name of a task's input."""
        return self.files[self.packs[index][0]].records.path

    def run(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        """Write the runs of one pack."""
        yield from ()
        number, units = self.packs[task.index]
        file, facts = self.files[number], RecordFacts()
        copied = (records for _, records in timed(file.records.read(units, facts), READ))
        return _write_runs(task, task.name, _wanted(copied, file, facts), facts, self.choices)


@dataclass(frozen=True, slots=True)
class _MadeBody(Body):
    """Makes messages of the chunks of a plan, and writes them as runs: those with times, and static ones."""

    plan: Plan
    entities: EntityFacts
    choices: _Choices

    def label(self, index: int) -> str:
        """The name of a task's input."""
        return self.plan.tasks[index].label

    def run(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        """Write the messages of one task."""
        outcome: dict[str, Any] = yield from minting(self.plan.minter(task.index), self._run(task))
        return outcome

    def _run(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        yield from ()
        facts, statics = RecordFacts(), list[RecordStretch]()
        maker = MessageMaker(facts, self.entities)
        outcome = _write_runs(task, task.name, self._made(task.index, maker, statics), facts, self.choices)
        name = f"{task.name}-static"
        if statics:
            _write_runs(task, name, statics, facts, self.choices)
        maker.warn(self.choices.destination)
        return {**outcome, "static": name if statics else ""}

    def _made(self, index: int, maker: MessageMaker, statics: list[RecordStretch]) -> Iterator[RecordStretch]:
        for chunk in self.plan.run(index):
            for is_static, stretch in maker.of(chunk):
                if is_static:
                    statics.append(stretch)
                else:
                    yield stretch


def _wanted(copied: Iterable[Records], file: CopiedRecords, facts: RecordFacts) -> Iterator[RecordStretch]:
    """Yield the messages of wanted channels; at the end, remove the other channels from ``facts``."""
    wanted: dict[int, bool] = {}
    for records in copied:
        ids = np.unique(records.heads["channel"]).tolist()
        for id_ in ids:
            if id_ not in wanted:
                wanted[id_] = file.wants(facts.channels[id_])
        which = np.isin(records.heads["channel"], [i for i in ids if wanted[i]])
        if which.any():
            yield RecordStretch(records.at(which), patched=False)
    for id_, channel in list(facts.channels.items()):
        if not wanted.get(id_, file.wants(channel)):
            del facts.channels[id_]


def _write_runs(
    task: TaskRun, name: str, stretches: Iterable[RecordStretch], facts: RecordFacts, choices: _Choices
) -> dict[str, Any]:
    """Write messages as sorted runs of a part, with their facts next to it; return the outcome."""
    part = name + _PART
    with writing(choices.destination):
        new = task.folder.new(part)
    try:
        writer = RunWriter(Output(new.file, choices.destination), _RUN_BYTES)
        held: list[RecordStretch] = []
        size = 0
        for stretch in compacted(stretches):
            held.append(stretch)
            size += int(stretch.sizes.sum())
            if size >= SORT_BYTES // 2 or not choices.sort:
                writer.write(Order(held, by_time=choices.sort))
                held, size = [], 0
        if held:
            writer.write(Order(held, by_time=choices.sort))
        writer.finish()
        writer.out.flush()
        with writing(choices.destination):
            reach("mcap.part", getattr(new.file, "name", None))
            new.finish()
    except BaseException:
        new.discard()
        raise
    task.put(name + _FACTS, _facts_to_json(facts, writer.runs))
    outcome = {"name": name, "part": part, "chunks": len(writer.runs), "rows": writer.messages}
    return {**outcome, "bytes": writer.out.position}


def _facts_to_json(facts: RecordFacts, runs: Sequence[MessageRun]) -> bytes:
    channels = {
        id_: [
            channel.topic,
            channel.message_encoding,
            channel.schema and [channel.schema.name, channel.schema.encoding, b64encode(channel.schema.data).decode()],
            channel.metadata,
        ]
        for id_, channel in facts.channels.items()
    }
    whole = {"channels": channels, "attachments": facts.attachments, "metadata": facts.metadata, "runs": runs}
    return json.dumps(whole).encode()


def _messages_of(number: int, name: str, staging: Staging) -> _Messages:
    """Return the runs of a task as messages."""
    whole = json.loads(staging.folder.get(name + _FACTS))
    facts = RecordFacts(
        attachments=[ExtraPlace(*place) for place in whole["attachments"]],
        metadata=[ExtraPlace(*place) for place in whole["metadata"]],
    )
    for id_, (topic, encoding, schema, metadata) in whole["channels"].items():
        own = None if schema is None else RecordSchema(schema[0], schema[1], b64decode(schema[2]))
        facts.channels[int(id_)] = RecordChannel(topic, encoding, own, tuple((k, v) for k, v in metadata))
    units = tuple(
        RecordUnit(run, run.size, run.start, run.end) for run in (MessageRun(*each) for each in whole["runs"])
    )
    return _Messages(number, _RunSource(staging.folder.place(name + _PART)), facts, units, tuple(facts.channels))


class _RunSource(RecordSource):
    """The runs in a part."""

    def __init__(self, path: str) -> None:
        self.path = path

    def outline(self) -> RecordOutline:
        """Return an empty outline: the task that wrote the part has reported its content."""
        return RecordOutline(None, RecordFacts(), (), is_complete=False)

    def entities(self, channel: RecordChannel) -> set[str]:  # noqa: ARG002
        """Return no entities."""
        return set()

    def read(self, units: Sequence[RecordUnit], facts: RecordFacts) -> Iterator[tuple[int, Records]]:  # noqa: ARG002
        """Yield the messages of some runs."""
        with open_positional(self.path) as file:
            for place, unit in enumerate(units):
                yield place, read_run(file, unit.split)


@dataclass(frozen=True, slots=True)
class _Copied:
    """A source of messages, with pairs of the old and new id of each channel to copy.

    A ``time`` is the log time and publish time of all messages.
    """

    records: RecordSource
    ids: tuple[tuple[int, int], ...]
    time: int | None = None

    def lookup(self) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.uint16] | None]:
        """Return whether each id is kept, and the new id of each, or None if all ids stay."""
        kept, ids = np.zeros(1 << 16, np.bool_), np.zeros(1 << 16, np.uint16)
        for old, new in self.ids:
            kept[old], ids[old] = True, new
        return kept, None if all(old == new for old, new in self.ids) else ids


@dataclass(frozen=True, slots=True)
class _WindowBody(Body):
    """Writes chunks, a task for each window."""

    sources: tuple[_Copied, ...]
    windows: Sequence[TimeWindow]
    choices: _Choices

    def label(self, index: int) -> str:
        """The names of a task's inputs."""
        return ", ".join(self.sources[n].records.path for n, _ in self.windows[index].units[:3])

    def run(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        """Write the chunks of one window."""
        yield from ()
        window, choices = self.windows[task.index], self.choices
        part = task.name + _PART
        wrong: set[int] = set()
        with writing(choices.destination):
            new = task.folder.new(part)
        try:
            out = Output(new.file, choices.destination)
            writer = McapChunkWriter(out, choices.chunk_bytes, choices.compression or "zstd")
            held: list[RecordStretch] = []
            size = 0
            stretches = self._stretches(window, wrong)
            for stretch in timed(compacted(stretches) if choices.sort else stretches, READ):
                held.append(stretch)
                size += int(stretch.sizes.sum())
                if not choices.sort:
                    writer.write(Order(held, by_time=False))
                    held = []
                elif size > 2 * SORT_BYTES:
                    raise _too_many(window, size)
            with phase(WRITE):
                if held and not wrong:
                    writer.write(Order(held, by_time=True))
                writer.finish()
                out.flush()
                with writing(choices.destination):
                    reach("mcap.part", getattr(new.file, "name", None))
                    new.finish()
        except BaseException:
            new.discard()
            raise
        task.put(task.name + _FACTS, _facts_to_bytes(*writer.facts()))
        outcome = {"name": task.name, "part": part, "wrong": sorted(wrong), "chunks": len(writer.chunks)}
        return {**outcome, "rows": writer.messages, "bytes": out.position}

    def _stretches(self, window: TimeWindow, wrong: set[int]) -> Iterator[RecordStretch]:
        """Yield the messages of a window, source by source; ``wrong`` gets the sources with units of other times."""
        for number, units in window.units:
            source = self.sources[number]
            kept, ids = source.lookup()
            for place, stored in source.records.read(units, RecordFacts()):
                records = stored if source.time is None else _timed(stored, source.time)
                times = records.heads["log_time"]
                unit = units[place]
                if self.choices.sort and not _is_within(unit, times):
                    wrong.add(number)
                    return
                which = kept[records.heads["channel"]] & window.holds(times)
                if which.any():
                    yield renumbered(records.at(which), ids)


def _timed(records: Records, time: int) -> Records:
    heads = records.heads.copy()
    heads["log_time"] = heads["publish_time"] = np.uint64(time)
    return records._replace(heads=heads, framed=False)


def _is_within(unit: RecordUnit, times: npt.NDArray[np.uint64]) -> bool:
    assert unit.start is not None
    assert unit.end is not None
    return int(times.min()) >= unit.start and int(times.max()) <= unit.end


def _too_many(window: TimeWindow, size: int) -> UsageError:
    return UsageError(
        f"messages with log times from {window.start} ns to before {window.end} ns have more than {size:,} bytes",
        hint=f"A task sorts up to {2 * SORT_BYTES:,} bytes in memory; sort=False keeps the order of the input.",
    )


def _facts_to_bytes(chunks: np.ndarray, indexes: np.ndarray) -> bytes:
    out = io.BytesIO()
    for array in (chunks, indexes):
        np.save(out, array, allow_pickle=False)
    return out.getvalue()


def _read_facts(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    source = io.BytesIO(data)
    return np.load(source, allow_pickle=False), np.load(source, allow_pickle=False)
