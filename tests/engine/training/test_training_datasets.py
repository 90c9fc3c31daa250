"""Datasets and the loader of PyTorch: the plan's order, whoever reads it, and a state that is exact."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chunkmill.engine import RecordingStore
from chunkmill.engine.catalog import DatasetEntry
from chunkmill.engine.errors import ReadWarning, UsageError
from drives import FRAMES, Drive, lake

torch = pytest.importorskip("torch")

from chunkmill.training import (  # noqa: E402 - not without torch
    BlockShuffle,
    DataSource,
    Field,
    IterableSamples,
    MapSamples,
    Mixture,
    NoShuffle,
    NumericDecoder,
    SampleShuffle,
    TextDecoder,
    VideoFrameDecoder,
    loader,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning"),
]

FIELDS = {
    "joints": Field("/arm:Scalars:scalars", NumericDecoder(), window=(0, 1)),
    "task": Field("/task:TextDocument:text", TextDecoder()),
}


@pytest.fixture(scope="module")
def drives(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Drive], DatasetEntry]:
    """Four recordings."""
    return lake(tmp_path_factory.mktemp("drives"), 4, marked=True)


def samples(dataset: DatasetEntry | DataSource, **options: Any) -> IterableSamples:
    """Samples of a dataset, in batches of 7."""
    source = dataset if isinstance(dataset, DataSource) else DataSource(dataset)
    given = {"batch_size": 7, "seed": 5, "shuffle": BlockShuffle(40, 4), "block_size": 10, "rank": 0, "world": 1}
    return IterableSamples(source, "frame", FIELDS, **{**given, **options})


def numbers(batches: Any) -> list[int]:
    """The numbers of samples in batches."""
    return [number for batch in batches for number in batch["sample"].tolist()]


def test_batches_are_tensors(drives: tuple[list[Drive], DatasetEntry]) -> None:
    known, dataset = drives
    made = samples(dataset)
    assert len(made) == 26
    for batch in made:
        for row, number in enumerate(batch["sample"].tolist()):
            drive, frame = known[number // FRAMES], number % FRAMES
            after = min(frame + 1, FRAMES - 1)
            assert batch["joints"][row].tolist() == drive.joints[[frame, after]].tolist()
            assert batch["joints_is_pad"][row].tolist() == [False, frame == FRAMES - 1]
            assert batch["task"][row] == f"task {number // FRAMES}"
    assert made.epoch == 1, "the next pass is the next epoch"


def test_single_samples_are_in_the_same_order(drives: tuple[list[Drive], DatasetEntry]) -> None:
    _, dataset = drives
    made = samples(dataset, batch_size=None)
    order = made.job.plan.epoch(0).samples.tolist()
    assert len(made) == len(order)
    plain = torch.utils.data.DataLoader(made, batch_size=16)
    assert numbers(plain) == order


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.process)])
@pytest.mark.heavy
def test_the_loader_goes_on_where_it_was_left(workers: int, drives: tuple[list[Drive], DatasetEntry]) -> None:
    _, dataset = drives
    whole = numbers(samples(dataset))
    first = loader(samples(dataset), num_workers=workers)
    given = []
    for step, batch in enumerate(first):
        given += batch["sample"].tolist()
        if step == 5:
            break
    state = json.loads(json.dumps(first.state_dict()))
    for world, batch_size, others in [(1, 7, 2 - workers), (3, 4, 0)]:
        rests = []
        for rank in range(world):
            again = loader(samples(dataset, rank=rank, world=world, batch_size=batch_size), num_workers=others)
            again.load_state_dict(state)
            again.set_epoch(0)
            rests.append([batch["sample"][~batch["is_repeat"]].tolist() for batch in again])
        assert len({len(rest) for rest in rests}) == 1, "all ranks have as many steps"
        dealt = [number for step in zip(*rests, strict=True) for part in step for number in part]
        assert given + dealt == whole
    following = loader(samples(dataset), num_workers=workers)
    following.load_state_dict(state)
    list(following)
    assert following.dataset.epoch == 1
    assert sorted(numbers(following)) == list(range(4 * FRAMES))
    assert following.dataset.epoch == 2


@pytest.mark.heavy
def test_random_stops_with_the_datasets_state(drives: tuple[list[Drive], DatasetEntry]) -> None:
    """Single samples and batches, stopped at random places, go on exactly."""
    _, dataset = drives
    draw = random.Random(3)
    for shuffle in (BlockShuffle(32, 2), SampleShuffle()):
        for size in (None, 5):
            whole = samples(dataset, batch_size=size, shuffle=shuffle)
            order = whole.job.with_run(size or 32).plan.epoch(0).samples.tolist()
            seen: list[int] = []
            state: dict[str, Any] | None = None
            while len(seen) < len(order):
                made = samples(dataset, batch_size=size, shuffle=shuffle)
                if state is not None:
                    made.load_state_dict(state)
                count = draw.randint(1, 60)
                for item in made:
                    seen += [item["sample"]] if size is None else item["sample"].tolist()
                    count -= 1
                    if not count:
                        break
                state = made.state_dict()
                assert seen == order[: len(seen)]


@pytest.mark.filterwarnings("ignore:.* were skipped")
@pytest.mark.parametrize("taken", [5, 20, 31, 60])
def test_samples_that_are_left_out_count_as_consumed(taken: int, drives: tuple[list[Drive], DatasetEntry]) -> None:
    fields = {"grip": Field("/grip:Scalars:scalars", NumericDecoder(), fill="skip")}

    def made() -> IterableSamples:
        return IterableSamples(DataSource(drives[1]), "frame", fields)

    whole = [sample["sample"] for sample in made()]
    stopped, again = made(), made()
    passing = iter(stopped)
    begun = [next(passing)["sample"] for _ in range(taken)]
    again.load_state_dict(stopped.state_dict())
    assert begun + [sample["sample"] for sample in again] == whole
    assert len(whole) < 4 * FRAMES


def test_a_mixture_has_its_shares(drives: tuple[list[Drive], DatasetEntry]) -> None:
    _, dataset = drives
    parts = {"a": DataSource(dataset, ["drive_0"]), "b": DataSource(dataset, ["drive_1", "drive_2"])}
    made = IterableSamples(Mixture(parts, {"a": 0.75, "b": 0.25}, 120), "frame", FIELDS, batch_size=16, rank=0, world=1)
    batches = list(made)
    seen = numbers(batches)
    assert (len(seen), sum(number < FRAMES for number in seen)) == (120, 90)
    assert sum(int(batch["is_repeat"].sum()) for batch in batches) == 45
    of_first = {text for batch in batches for text, n in zip(batch["task"], batch["sample"], strict=True) if n < FRAMES}
    assert of_first == {"task 0"}
    with pytest.raises(ValueError, match="a weight for each"):
        Mixture(parts, {"a": 1.0}, 10)


def test_a_state_of_another_job_is_refused(drives: tuple[list[Drive], DatasetEntry]) -> None:
    _, dataset = drives
    state = samples(dataset).state_dict()
    for other in (
        samples(dataset, seed=6),
        samples(dataset, shuffle=SampleShuffle()),
        IterableSamples(DataSource(dataset, ["drive_1"]), "frame", FIELDS, seed=5, shuffle=BlockShuffle(40, 4)),
    ):
        with pytest.raises(ValueError, match="the state is of another job"):
            other.load_state_dict(state)
    with pytest.raises(ValueError, match="not the state of a job"):
        samples(dataset).load_state_dict({})
    with pytest.raises(ValueError, match="given together"):
        samples(dataset, rank=0, world=None).part  # noqa: B018 - it is asked for there


def test_maps(drives: tuple[list[Drive], DatasetEntry]) -> None:
    known, dataset = drives
    fields = {
        "joints": Field("/arm:Scalars:scalars", NumericDecoder()),
        "front": Field("/front:VideoStream:sample", VideoFrameDecoder()),
    }
    made = MapSamples(DataSource(dataset), "frame", fields)
    assert len(made) == 4 * FRAMES
    assert np.array_equal(made[FRAMES + 3]["front"].numpy(), known[1].frames[3])
    assert made[-1]["sample"] == 4 * FRAMES - 1
    with pytest.raises(IndexError, match="180 samples"):
        made[4 * FRAMES]
    generator = torch.Generator().manual_seed(1)
    batches = list(torch.utils.data.DataLoader(made, batch_size=50, shuffle=True, generator=generator))
    assert sorted(numbers(batches)) == list(range(4 * FRAMES))


KILLED = """
import json, os, signal, sys
from pathlib import Path
from chunkmill import CatalogClient
from chunkmill.training import DataSource, Field, IterableSamples, NumericDecoder, loader

if __name__ == "__main__":
    dataset = CatalogClient(Path(sys.argv[1])).get_dataset("drives")
    fields = {"joints": Field("/arm:Scalars:scalars", NumericDecoder())}
    made = loader(IterableSamples(DataSource(dataset), "frame", fields, batch_size=2), num_workers=2)
    seen, error = [], ""
    try:
        for number, batch in enumerate(made):
            seen += batch["sample"].tolist()
            if number == 1:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch would raise wherever the program is
                os.kill(made._batches._iterator._workers[1].pid, signal.SIGKILL)
    except RuntimeError as failure:
        error = str(failure)
    print(json.dumps([seen, error, made.state_dict()]), flush=True)
    os._exit(0)  # torch raises again where the other worker ends
"""


@pytest.mark.process
@pytest.mark.heavy
def test_a_killed_worker_is_an_error(drives: tuple[list[Drive], DatasetEntry], tmp_path: Path) -> None:
    """And the state goes on behind what was given."""
    _, dataset = drives
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    lake_folder = str(dataset.catalog.url)
    done = subprocess.run([sys.executable, script, lake_folder], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    seen, error, state = json.loads(done.stdout)
    assert error
    fields = {"joints": Field("/arm:Scalars:scalars", NumericDecoder())}
    again = loader(IterableSamples(DataSource(dataset), "frame", fields, batch_size=2))
    again.load_state_dict(state)
    assert seen + numbers(again) == again.dataset.job.plan.epoch(0).samples.tolist()


def test_what_is_wrong_is_said(drives: tuple[list[Drive], DatasetEntry], tmp_path: Path) -> None:
    _, dataset = drives
    with pytest.raises(ValueError, match="single samples"):
        loader(samples(dataset, batch_size=None))
    with pytest.raises(ValueError, match="epoch"):
        samples(dataset).set_epoch(-1)
    grip = {"grip": Field("/top:EncodedImage:media_type", TextDecoder())}
    with pytest.raises(ValueError, match="no column"):
        IterableSamples(DataSource(dataset), "frame", grip)


@pytest.mark.process
@pytest.mark.heavy
def test_workers_that_are_forked_after_reading(drives: tuple[list[Drive], DatasetEntry]) -> None:
    """They have readers of their own: threads and processes of video do not go on in a fork."""
    _, dataset = drives
    made = MapSamples(DataSource(dataset), "frame", {"front": Field("/front:VideoStream:sample", VideoFrameDecoder())})
    first = made[5]["front"]
    batches = torch.utils.data.DataLoader(made, batch_size=20, num_workers=2, multiprocessing_context="fork")
    found = {int(n): front for batch in batches for n, front in zip(batch["sample"], batch["front"], strict=True)}
    assert len(found) == 4 * FRAMES
    assert torch.equal(found[5], first)


@pytest.mark.process
@pytest.mark.heavy
def test_a_plain_dataloader_with_workers_warns(
    drives: tuple[list[Drive], DatasetEntry], capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither the state nor the number of the epoch counts what workers read."""
    _, dataset = drives
    made = samples(dataset)
    made.state_dict()
    plain = torch.utils.data.DataLoader(made, batch_size=None, num_workers=1, multiprocessing_context="spawn")
    first = numbers(plain)
    with pytest.warns(ReadWarning, match="does not count batches from workers"):
        assert made.state_dict()["place"] == 0
    assert "read again" not in capfd.readouterr().err
    assert numbers(plain) == first
    assert "ReadWarning: epoch 0 is read again in the same order; call set_epoch()" in capfd.readouterr().err
    made.set_epoch(1)
    assert made.state_dict()["epoch"] == 1
    assert numbers(plain) != first
    assert "read again" not in capfd.readouterr().err


def test_states_of_single_samples_are_places(drives: tuple[list[Drive], DatasetEntry]) -> None:
    """One reader has taken the beginning of the epoch, from which any number goes on, and says so again at once."""
    _, dataset = drives
    made = samples(dataset, batch_size=None)
    taken = [item["sample"] for _, item in zip(range(40), made, strict=False)]
    state = made.state_dict()
    again = samples(dataset, batch_size=None)
    again.load_state_dict(state)
    assert again.state_dict() == state
    rests = []
    for rank in range(2):
        part = samples(dataset, batch_size=9, rank=rank, world=2)
        part.load_state_dict(state)
        rests.append([batch["sample"][~batch["is_repeat"]].tolist() for batch in part])
    dealt = [number for step in zip(*rests, strict=True) for share in step for number in share]
    assert taken + dealt == made.job.plan.epoch(0).samples.tolist()


def test_a_state_of_one_of_several_readers_is_theirs_alone(drives: tuple[list[Drive], DatasetEntry]) -> None:
    _, dataset = drives
    made = samples(dataset, batch_size=None, rank=1, world=2)
    taken = [item["sample"] for _, item in zip(range(40), made, strict=False)]
    state = json.loads(json.dumps(made.state_dict()))
    again = samples(dataset, batch_size=None, rank=1, world=2)
    again.load_state_dict(state)
    assert again.state_dict() == state
    whole = [item["sample"] for item in samples(dataset, batch_size=None, rank=1, world=2)]
    assert taken + [item["sample"] for item in again] == whole
    other = samples(dataset, batch_size=None, rank=1, world=3)
    other.load_state_dict(state)
    with pytest.raises(ValueError, match="one of several readers"):
        next(iter(other))


def test_another_size_of_blocks_is_another_job(drives: tuple[list[Drive], DatasetEntry]) -> None:
    _, dataset = drives
    with pytest.raises(ValueError, match="its blocks"):
        samples(dataset, block_size=30).load_state_dict(samples(dataset).state_dict())
    samples(dataset, block_size=30, shuffle=SampleShuffle()).load_state_dict(
        samples(dataset, shuffle=SampleShuffle()).state_dict()
    )
    behind = {**samples(dataset).state_dict(), "place": 1000}
    with pytest.raises(ValueError, match="place 1,000"):
        samples(dataset).load_state_dict(behind)


def test_a_dataset_that_was_pickled_before_ranks_were_known(drives: tuple[list[Drive], DatasetEntry]) -> None:
    _, dataset = drives
    made = pickle.loads(pickle.dumps(samples(dataset, rank=None, world=None)))
    assert made._topology == (None, None)
    assert pickle.loads(pickle.dumps(samples(dataset, rank=1, world=2))).part.world == 2


def test_ranks_have_as_many_batches_where_samples_are_left_out(drives: tuple[list[Drive], DatasetEntry]) -> None:
    _, dataset = drives
    fields = {"grip": Field("/grip:Scalars:scalars", NumericDecoder(), fill="skip")}
    options = {"shuffle": NoShuffle(), "batch_size": 6}
    with pytest.warns(ReadWarning, match="were skipped"):
        parts = [
            list(IterableSamples(DataSource(dataset), "frame", fields, rank=rank, world=2, **options))
            for rank in range(1, -1, -1)
        ]
    assert len(parts[0]) == len(parts[1])
    assert any(bool(batch["is_repeat"].all()) for part in parts for batch in part)


def test_an_epoch_that_is_set_in_a_pass_comes_next(drives: tuple[list[Drive], DatasetEntry]) -> None:
    _, dataset = drives
    made = samples(dataset)
    for number, _ in enumerate(made):
        if number == 2:
            made.set_epoch(5)
    assert made.epoch == 5


def test_maps_leave_nothing_out(drives: tuple[list[Drive], DatasetEntry]) -> None:
    _, dataset = drives
    with pytest.raises(ValueError, match="cannot be skipped"):
        MapSamples(DataSource(dataset), "frame", {"x": Field("/arm:Scalars:scalars", NumericDecoder(), fill="skip")})
    with pytest.raises(ValueError, match="batch_size"):
        samples(dataset, batch_size=0)


def cleaned(dataset: DatasetEntry) -> None:
    """Remove every version that nothing keeps."""
    dataset.do_maintenance(cleanup_before=timedelta(), unsafe_allow_recent_cleanup=True)


def test_a_job_sees_the_version_that_it_was_made_of(tmp_path: Path) -> None:
    """Also when it is started again after the dataset has changed; a tag keeps the version from maintenance."""
    _, dataset = lake(tmp_path, 2)
    made = samples(DataSource(dataset, keep="run-1"))
    iterator = iter(made)
    next(iterator)
    state = json.loads(json.dumps(made.state_dict()))
    assert state["dataset_versions"] == [["drives", 1]] and dataset.tags() == {"run-1": 1}
    rest = numbers(iterator)
    dataset.unregister(segments_to_drop=dataset.segment_ids()[0])
    cleaned(dataset)
    source = DataSource(dataset, keep="run-1")
    again = samples(source)
    again.load_state_dict(state)
    assert numbers(again) == rest and len(rest) == 2 * FRAMES - 7
    narrowed = DataSource(dataset, keep="run-1").filter_segments(["drive_0"])
    assert narrowed.version == ("drives", 1) and len(samples(narrowed).job.plan) == FRAMES

    newest = dataset.at().version
    hint = rf"The state is of version 1 of 'drives', not of version {newest} of 'drives': give .*at\(1\)\)"
    with pytest.raises(ValueError, match=hint + r".*keep=NAME"):
        samples(dataset).load_state_dict(state)
    dataset.untag("run-1")
    cleaned(dataset)
    with pytest.raises(LookupError, match=r"it was removed.*A tag keeps a version"):
        DataSource(dataset.at(1))


def test_a_source_is_of_the_newest_version_when_it_is_made(tmp_path: Path) -> None:
    _, dataset = lake(tmp_path, 2)
    sources = [
        DataSource(dataset),
        DataSource(dataset.at(1)),
        DataSource(dataset.filter_segments(["drive_0", "drive_1"])),
        DataSource(RecordingStore.open(dataset)),
    ]
    dataset.unregister(segments_to_drop="drive_0")
    assert [len(samples(source).job.plan) for source in sources] == [2 * FRAMES] * 4
    assert [source.version and source.version.version for source in sources] == [1] * 4
    assert samples(sources[3]).state_dict()["dataset_versions"] == [[str(dataset.store_reader().folder.path), 1]]
    assert len(samples(dataset).job.plan) == FRAMES


def test_what_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    _, dataset = lake(tmp_path, 1)
    with pytest.raises(UsageError, match="keep needs a dataset of a catalog"):
        DataSource(RecordingStore.open(dataset), keep="a")
    with pytest.raises(UsageError, match=r"at version 1, which has no tag 'a'.*tag\('a', 1\)"):
        DataSource(dataset.at(1), keep="a")
    with pytest.raises(UsageError, match="is not a valid tag name"):
        DataSource(dataset, keep="a/b")
    empty = dataset.catalog.create_dataset("empty")
    assert DataSource(empty).version is None
    with pytest.raises(LookupError, match="dataset 'empty' has no versions"):
        DataSource(empty, keep="a")
    assert dataset.tags() == {}


@pytest.mark.parametrize("size", [None, 7])
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.process)])
@pytest.mark.heavy
def test_torchdatas_loader_goes_on_with_as_many_workers(
    workers: int, size: int | None, drives: tuple[list[Drive], DatasetEntry]
) -> None:
    """Its state has that of each worker, which fits as many workers alone; other numbers are refused."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    _, dataset = drives

    def made(count: int = workers) -> Any:
        options = {"multiprocessing_context": "spawn"} if count else {}
        batch = 8 if size is None else None
        return stateful(samples(dataset, batch_size=size), batch_size=batch, num_workers=count, **options)

    whole = [batch["sample"].tolist() for batch in made()]
    assert sorted(number for batch in whole for number in batch) == list(range(4 * FRAMES))
    for stop in (6,) if workers else (1, 6, 11):
        first, again = made(), made()
        seen = [batch["sample"].tolist() for batch in islice(first, stop)]
        again.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))
        assert seen + [batch["sample"].tolist() for batch in again] == whole
    if workers and size is not None:
        other = made(1)
        with pytest.raises((AssertionError, ValueError, RuntimeError)):  # noqa: PT012 - it is said at one of both
            other.load_state_dict(first.state_dict())
            list(other)


@pytest.mark.process
@pytest.mark.heavy
@pytest.mark.parametrize(
    "strategy", [NoShuffle(), SampleShuffle(), BlockShuffle(40, 4)], ids=lambda some: repr(some)[:6]
)
@pytest.mark.parametrize("mixed", [False, True])
def test_random_stops_with_other_ranks_and_workers(
    strategy: Any, mixed: bool, drives: tuple[list[Drive], DatasetEntry]
) -> None:
    """Over two epochs: all that was taken is what the plan has, in its order, by loaders that read and decode."""
    known, dataset = drives
    draw = random.Random(repr(strategy))
    source: Any = DataSource(dataset)
    if mixed:
        parts = {"a": DataSource(dataset, ["drive_0", "drive_1"]), "b": DataSource(dataset, ["drive_2", "drive_3"])}
        source = Mixture(parts, {"a": 0.7, "b": 0.3}, 150)

    def made(rank: int, world: int, size: int, workers: int, state: dict[str, Any] | None) -> Any:
        arguments = {"shuffle": strategy, "seed": 5, "block_size": 10, "batch_size": size, "rank": rank, "world": world}
        batches = loader(IterableSamples(source, "frame", FIELDS, **arguments), num_workers=workers)
        if state is not None:
            batches.load_state_dict(state)
        return batches

    state = made(0, 1, 7, 0, None).state_dict()
    plan = made(0, 1, 7, 0, state).dataset.job.plan
    stops = 0
    for epoch in range(2):
        order = plan.epoch(epoch).samples.tolist()
        seen: list[int] = []
        while len(seen) < len(order):
            world, size, steps = draw.randint(1, 3), draw.randint(3, 9), draw.randint(1, 2)
            workers = 2 if world == 1 and stops in (3, 4) else 0
            loaders = [made(rank, world, size, workers, state) for rank in range(world)]
            taken = [list(islice(some, steps)) for some in loaders]
            assert len({len(some) for some in taken}) == 1
            for step in zip(*taken, strict=True):
                for batch in step:
                    seen += batch["sample"].tolist()
                    for number, joints in zip(batch["sample"].tolist(), batch["joints"], strict=True):
                        drive, frame = known[number // FRAMES], number % FRAMES
                        assert joints[0].tolist() == drive.joints[frame].tolist()
            states = [json.dumps(some.state_dict()) for some in loaders]
            assert len(set(states)) == 1, "any rank's state is that of all"
            state = json.loads(states[0])
            stops += 1
            seen = seen[: len(order)]  # what fills up the last step stands behind all others
            assert seen == order[: len(seen)]
        if state["epoch"] == epoch:
            state = {**state, "epoch": epoch + 1, "place": 0}
    assert stops >= 10


def test_batches_are_moved_to_a_device(drives: tuple[list[Drive], DatasetEntry]) -> None:
    """All tensors of a batch are, and text stays."""
    _, dataset = drives
    plain = next(iter(loader(samples(dataset))))
    for device in ("cpu", "meta"):  # the second one has no values, and any machine has it
        batch = next(iter(loader(samples(dataset), device=device)))
        assert batch["task"] == plain["task"]
        tensors = {name: value for name, value in batch.items() if name != "task"}
        assert {value.device.type for value in tensors.values()} == {device}
        assert {name: value.shape for name, value in tensors.items()} == {name: plain[name].shape for name in tensors}
    assert torch.equal(next(iter(loader(samples(dataset), device="cpu")))["joints"], plain["joints"])
