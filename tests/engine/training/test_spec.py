"""Specifications of samples, and what a pass over a job takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine.catalog import DatasetEntry
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.errors import ReadError, SourceMissingError
from chunkmill.engine.specs import read_spec
from chunkmill.engine.training.job import TrainingJob
from chunkmill.training import (
    BlockShuffle,
    Field,
    FixedRateSampling,
    ImageDecoder,
    NoShuffle,
    NumericDecoder,
    RowSampling,
    SampleShuffle,
    SampleSpec,
    TextDecoder,
    VideoFrameDecoder,
    samples_table,
)
from click.testing import CliRunner
from drives import FRAMES, Drive, lake

TEXT = """
index: time
timeline_sampling: {rate_hz: 15}
segments: [drive_0]
fields:
  arm: {path: "/arm:Scalars:scalars", window: [-0.1, 0], max_staleness: 1, edges: trim}
  task: {path: "/task:TextDocument:text", decode: text}
  top: {path: "/top:EncodedImage:blob", decode: {by: image, size: [8, 12]}, fill: skip}
  front:
    path: "/front:VideoStream:sample"
    decode: {by: video, threads: 1}
shuffle: {by: block, buffer_size: 64, lanes: 4}
seed: 7
batch_size: 16
block_size: 10
"""


@pytest.fixture(scope="module")
def drives(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Drive], DatasetEntry, Path]:
    """Two recordings, their lake, and a folder."""
    folder = tmp_path_factory.mktemp("drives")
    (folder / "spec.yaml").write_text(TEXT)
    return *lake(folder, 2, marked=True), folder


def test_a_file_says_what_arguments_say(drives: tuple[list[Drive], DatasetEntry, Path]) -> None:
    _, dataset, folder = drives
    spec = SampleSpec.load(folder / "spec.yaml")
    assert spec == SampleSpec(
        "time",
        {
            "arm": Field("/arm:Scalars:scalars", NumericDecoder(), None, (-0.1, 0), 1, None, "trim"),
            "task": Field("/task:TextDocument:text", TextDecoder()),
            "top": Field("/top:EncodedImage:blob", ImageDecoder((8, 12)), fill="skip"),
            "front": Field("/front:VideoStream:sample", VideoFrameDecoder(1)),
        },
        FixedRateSampling(15),
        BlockShuffle(64, 4),
        7,
        16,
        10,
        ("drive_0",),
    )
    job = spec.job(dataset)
    assert (len(job.plan), job.plan.run, job.plan.seed) == (21, 16, 7)
    plain = {"index": "frame", "fields": {"arm": {"path": "/arm:Scalars:scalars"}}}
    assert SampleSpec.of(plain) == SampleSpec("frame", {"arm": Field("/arm:Scalars:scalars", NumericDecoder())})
    rows = {"timeline_sampling": {"rows": "/top:EncodedImage:blob"}, "shuffle": "none"}
    made = SampleSpec.of({**plain, **rows})
    assert (made.timeline_sampling, made.shuffle) == (RowSampling("/top:EncodedImage:blob"), NoShuffle())


ARM = {"path": "/arm:Scalars:scalars"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"fields": {"arm": ARM}}, "index: it is missing"),
        ({"index": "time"}, "fields: it is missing"),
        ({"index": "time", "fields": {}}, "fields: there is none"),
        ({"index": "time", "fields": {"arm": "/arm"}}, r"fields\.arm: '/arm' is not a mapping"),
        ({"index": "time", "fields": {"arm": {}}}, r"fields\.arm\.path: it is missing"),
        ({"index": "time", "field": {"arm": ARM}, "fields": {"arm": ARM}}, "did you mean 'fields'"),
        ({"index": "time", "fields": {"arm": {**ARM, "windows": [1]}}}, r"arm\.windows: there is no such key; did"),
        ({"index": "time", "fields": {"arm": {**ARM, "window": ["a"]}}}, r"arm\.window: \['a'\] is not a list of num"),
        ({"index": "time", "fields": {"arm": {**ARM, "window": []}}}, r"fields\.arm: window of /arm"),
        ({"index": "time", "fields": {"arm": {**ARM, "fill": "zero"}}}, "expected one of error, skip, nan"),
        (
            {"index": "time", "fields": {"arm": {**ARM, "decode": "lidar"}}},
            "'lidar' is not one of numeric, text, image",
        ),
        ({"index": "time", "fields": {"arm": {**ARM, "decode": {"size": [1, 2]}}}}, r"decode\.by: it is missing"),
        ({"index": "time", "fields": {"arm": {**ARM, "decode": {"by": "image", "size": [0, 2]}}}}, "height and width"),
        ({"index": "time", "fields": {"arm": {**ARM, "decode": {"by": "video", "crop": [0, 1]}}}}, "top, left, height"),
        ({"index": "time", "fields": {"arm": {**ARM, "decode": {"by": "numeric", "dtype": "x"}}}}, "a type of numbers"),
        ({"index": "time", "fields": {"arm": {**ARM, "decode": {"by": "text", "size": [1]}}}}, r"decode\.size: there"),
        (
            {"index": "time", "fields": {"arm": {**ARM, "decode": {"by": "video", "threads": 0}}}},
            "0 must be at least 1",
        ),
        ({"index": "time", "fields": {"arm": {**ARM, "select": ".["}}}, r"select: '\.\[' is not a selector"),
        ({"index": "time", "fields": {"arm": ARM}, "shuffle": {"by": "block", "lanes": 0}}, "shuffle: BlockShuffle"),
        ({"index": "time", "fields": {"arm": ARM}, "shuffle": True}, "True is not str or dict"),
        ({"index": "time", "fields": {"arm": ARM}, "batch_size": 0}, "batch_size: 0 must be at least 1"),
        ({"index": "time", "fields": {"arm": ARM}, "segments": [1]}, "not a list of ids"),
        ({"index": "time", "fields": {"arm": ARM}, "timeline_sampling": {}}, "either rate_hz or rows"),
        ({"index": "time", "fields": {"arm": ARM}, "timeline_sampling": {"rate_hz": -1}}, "a positive number"),
    ],
)
def test_an_error_names_the_key(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        SampleSpec.of(given)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "max_staleness: 1",
            "max_staleness: soon",
            r"fields\.arm\.max_staleness \(line 6\): 'soon' is not",
        ),
        ("threads: 1", "threads: many", r"front\.decode\.threads \(line 11\)"),
        ("seed: 7", "sead: 7", r"sead \(line 13\): there is no such key; did you mean 'seed'"),
        ("seed: 7", "index: frame", "the key index is given twice, the second time in line 13"),
        ("seed: 7", "seed: {", "is not YAML"),
        ("seed: 7", "seed: !!python/object:object {}", "is not YAML"),
    ],
)
def test_an_error_of_a_file_names_the_line(old: str, new: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(TEXT.replace(old, new))
    with pytest.raises((ValueError, ReadError), match=said):
        SampleSpec.load(path)
    with pytest.raises(SourceMissingError):
        SampleSpec.load(tmp_path / "none.yaml")
    path.write_text("- 5")
    with pytest.raises(ReadError, match="is not a mapping"):
        SampleSpec.load(path)


def test_lines_of_lists_and_aliases(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(
        "a: &x {b: 1}\nc: *x\nd: [{b: 1}, {b: 2}, [3]]\ne:\n  <<: *x\n  ? [1, 2]\n  : 3\n  f: {g: 4}\nh: 5\n"
    )
    with pytest.raises(ReadError, match="is not YAML"):
        read_spec(path, "a: 1", "training")  # a list is no key
    path.write_text(path.read_text().replace("  ? [1, 2]\n  : 3\n", ""))
    given, lines = read_spec(path, "a: 1", "training")
    assert given == {"a": {"b": 1}, "c": {"b": 1}, "d": [{"b": 1}, {"b": 2}, [3]], "e": {"b": 1, "f": {"g": 4}}, "h": 5}
    wanted = {"a": 1, "a.b": 1, "c": 2, "d": 3, "e": 4, "e.f": 6, "e.f.g": 6, "h": 7}
    assert {name: lines[name] for name in wanted} == wanted


def job(dataset: DatasetEntry, shuffle: Any, **fields: Field) -> TrainingJob:
    """The samples of a dataset along ``frame``."""
    return SampleSpec("frame", fields, shuffle=shuffle, block_size=10).job(dataset)


VIDEO = Field("/front:VideoStream:sample", VideoFrameDecoder())


def test_a_pass_counts_what_it_takes(drives: tuple[list[Drive], DatasetEntry, Path]) -> None:
    _, dataset, folder = drives
    ordered = job(dataset, NoShuffle(), front=VIDEO).measure()
    assert (ordered.samples, ordered.skipped, ordered.used_frames) == (2 * FRAMES, 0, 2 * FRAMES)
    assert (ordered.decoded_frames, ordered.decoded_groups) == (2 * FRAMES, 2 * 5)
    assert ordered.decoded_per_frame == 1
    assert ordered.chunks == 2 * 4, "three of samples, and that of the codec"
    stored = sum(path.stat().st_size for path in folder.glob("*.rrd"))
    assert 0 < ordered.chunk_bytes < stored
    assert ordered.requests > 0
    assert ordered.fetched_bytes >= ordered.chunk_bytes
    assert 0 < ordered.first_seconds <= ordered.seconds
    few = job(dataset, NoShuffle(), front=VIDEO).measure(limit=5)
    assert (few.samples, few.decoded_frames, few.decoded_groups, few.chunks) == (5, 5, 1, 2)
    windows = Field("/front:VideoStream:sample", VideoFrameDecoder(), window=(0, 1))
    assert job(dataset, NoShuffle(), front=windows).measure(limit=5).used_frames == 10


def test_a_pass_in_random_order_decodes_more(drives: tuple[list[Drive], DatasetEntry, Path]) -> None:
    _, dataset, _ = drives
    made = job(dataset, SampleShuffle(), front=VIDEO)
    figures = made.measure(limit=8)
    assert figures.decoded_per_frame is not None
    assert figures.decoded_per_frame > 2, "each frame is decoded from its key frame on"


def test_a_pass_counts_what_is_skipped(drives: tuple[list[Drive], DatasetEntry, Path]) -> None:
    _, dataset, _ = drives
    made = job(dataset, NoShuffle(), grip=Field("/grip:Scalars:scalars", NumericDecoder(), fill="skip"))
    figures = made.measure()
    assert (figures.samples, figures.skipped) == (2 * 30, 2 * 15)
    assert figures.decoded_per_frame is None
    table = samples_table(made, limit=20)
    assert table["frame"].to_pylist() == [*range(5, 20), *range(30, 35)]
    assert table["grip"].to_pylist() == [[0.5], *[[0.6]] * 14, *[[3.0]] * 5]


def test_the_command_line_shows_samples(drives: tuple[list[Drive], DatasetEntry, Path]) -> None:
    _, _, folder = drives
    command = ["samples", str(folder / "lake"), "drives", "--spec", str(folder / "spec.yaml")]
    done = CliRunner().invoke(commands, [*command, "--limit", "2"])
    assert done.exit_code == 0, done.output
    lines = [" ".join(line.split()) for line in done.output.splitlines()]
    assert lines[0] == "drives: 21 samples of 1 segment along time, in 2 blocks"
    assert lines[1] == "epoch 0 by BlockShuffle(buffer_size=64, lanes=4), seed 7, batches of 16"
    assert "arm 2 x 7 double /arm:Scalars:scalars" in lines
    assert "front 3 x 32 x 32 uint8 /front:VideoStream:sample" in lines
    assert "task string /task:TextDocument:text" in lines
    assert len([line for line in lines if "drive_0" in line]) == 2
    found = json.loads(CliRunner().invoke(commands, [*command, "--json", "--limit", "2"]).output)
    assert found["fields"]["top"] == {"shape": [3, 8, 12], "type": "uint8"}
    assert [row["place"] for row in found["first"]] == [0, 1]
    done = CliRunner().invoke(commands, [*command, "--bench"])
    assert done.exit_code == 0, done.output
    assert "21 samples in" in done.output
    assert "for 21 frames in samples" in done.output
