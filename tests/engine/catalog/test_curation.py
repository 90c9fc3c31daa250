"""Curation: labels of people, near-duplicates of segments, balanced samples, and sets that stay as they are."""

from __future__ import annotations

import getpass
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill.engine.catalog import CatalogClient, DatasetEntry
from chunkmill.engine.chunk import Chunk, ComponentColumn, ComponentDescriptor, TimeColumn
from chunkmill.engine.errors import NotFoundError, ReadError, ReadWarning, UsageError
from chunkmill.engine.rrd import RrdWriter, StoreEntry
from chunkmill.engine.tables import udf
from chunkmill.training import DataSource, Field, FixedRateSampling, NumericDecoder, SampleIndex, SampleReader
from datafusion import col
from datafusion import functions as f

SPEED = "/speed:Scalars:scalars"
WEATHERS = ("sun", "rain", "fog")
SPEC = {
    "fps": 10,
    "timeline": "time",
    "task": "drive",
    "features": {"observation.speed": {"entity": "/speed", "component": "Scalars:scalars", "shape": [1]}},
}


def drive(values: Iterable[float], weather: str | None = None) -> list[Chunk]:
    """A speed at 10 Hz, along a time and a number."""
    rows = [[value] for value in values]
    ticks = np.arange(len(rows))
    lines = [TimeColumn("frame", sequence=ticks), TimeColumn("time", duration=ticks / 10)]
    column = ComponentColumn("Scalars:scalars", pa.array(rows, pa.list_(pa.float64())))
    chunks = [Chunk.from_columns("/speed", lines, [column])]
    if weather is not None:
        known = ComponentDescriptor("weather"), pa.array([[weather]])
        chunks.append(Chunk.build("/__properties/info", {}, [known]))
    return chunks


def register(dataset: DatasetEntry, folder: Path, recordings: dict[str, list[Chunk]], *, copy: bool = True) -> None:
    """Register recordings as segments."""
    folder.mkdir(exist_ok=True)
    before, paths = len(list(folder.iterdir())), []
    for number, (name, chunks) in enumerate(recordings.items()):
        paths.append(str(folder / f"{before + number}.rrd"))
        with RrdWriter(Path(paths[-1])) as writer:
            store = StoreEntry("recording", "tests", name)
            writer.begin_store(store)
            for chunk in chunks:
                writer.append(store, chunk)
            writer.finish()
    dataset.register(paths, copy=copy, executor="inline").wait()


@pytest.fixture
def client(tmp_path: Path) -> CatalogClient:
    return CatalogClient(tmp_path / "lake")


@pytest.fixture
def dataset(client: CatalogClient, tmp_path: Path) -> DatasetEntry:
    """Segments ``s0`` to ``s11``, every fourth in fog and the others in sun and rain."""
    dataset = client.create_dataset("drives")
    random = np.random.default_rng(1)
    weathers = ["fog" if n % 4 == 0 else WEATHERS[n % 2] for n in range(12)]
    register(
        dataset,
        tmp_path / "files",
        {f"s{n}": drive(random.normal(size=30), weather) for n, weather in enumerate(weathers)},
    )
    return dataset


# --- near-duplicates


@udf(data_type=pa.list_(pa.float64(), 8))
def features(speeds: list) -> Any:
    """The mean of eight parts of a signal."""
    return np.array(speeds).reshape(8, -1).mean(axis=1)


@pytest.mark.parametrize(
    ("segments", "planted"), [(60, 6), pytest.param(1000, 50, marks=pytest.mark.slow)], ids=["some", "thousand"]
)
def test_planted_copies_are_found_and_none_of_the_others(
    client: CatalogClient, tmp_path: Path, segments: int, planted: int
) -> None:
    random = np.random.default_rng(0)
    signals = random.normal(size=(segments, 8)).repeat(8, axis=1)
    chosen = random.permutation(segments).tolist()
    copies = dict(zip(chosen[:planted], chosen[planted : 2 * planted], strict=True))
    for copy, of in copies.items():
        signals[copy] = signals[of] * random.uniform(0.8, 1.25)
    signals += random.normal(0, 0.02, signals.shape)
    dataset = client.create_dataset("drives")
    register(dataset, tmp_path / "files", {f"s{n:03}": drive(signal) for n, signal in enumerate(signals)}, copy=False)

    rows = dataset.reader("frame").select(
        col("rerun_segment_id"), col("frame"), f.array_element(col(f'"{SPEED}"'), 1).alias("speed")
    )
    speeds = f.array_agg(col("speed"), order_by=[col("frame").sort()]).alias("speeds")
    table = client.create_table(
        "signals", pa.schema([("rerun_segment_id", pa.string()), ("speeds", pa.list_(pa.float64()))])
    )
    table.append(rows.aggregate([col("rerun_segment_id")], [speeds]).to_arrow_table())
    computed = table.computed(executor="inline")
    computed.add_columns({"embedding": features})
    assert computed.backfill("embedding").columns["embedding"].rows_processed == segments

    found = table.near_duplicates("embedding", threshold=0.99, executor="inline").to_pylist()
    pairs = {frozenset((f"s{copy:03}", f"s{of:03}")) for copy, of in copies.items()}
    assert {frozenset((row["rerun_segment_id"], row["duplicate_of"])) for row in found} == pairs
    assert len(found) == len(pairs) == planted
    assert computed.near_duplicates("embedding", threshold=0.99).num_rows == planted
    left = set(dataset.segment_ids()) - {row["rerun_segment_id"] for row in found}
    assert len(dataset.filter_segments(left).segment_ids()) == segments - planted


# --- samples


def weather_of(view: Any) -> Counter[Any]:
    values = view.segment_table().to_arrow_table()["property:info:weather"].to_pylist()
    return Counter(value[0] if value else None for value in values)


def test_a_sample_has_so_many_segments_of_each_weather(dataset: DatasetEntry, tmp_path: Path) -> None:
    sample = dataset.sample(2, by="property:info:weather", seed=1)
    assert weather_of(sample) == {"sun": 2, "rain": 2, "fog": 2}
    assert sample.segment_ids() == [id_ for id_ in dataset.segment_ids() if id_ in set(sample.segment_ids())]
    rows = sample.reader("frame").to_arrow_table()
    assert len(rows) == 6 * 30
    register(dataset, tmp_path / "files", {"other": drive([1.0] * 30)})
    with pytest.warns(
        ReadWarning, match=r"smaller than n=2: there are only 1 of None in property:info:weather"
    ) as said:
        again = dataset.sample(2, by="property:info:weather", seed=1)
    assert said[0].filename == __file__ and weather_of(again) == {"sun": 2, "rain": 2, "fog": 2, None: 1}
    assert set(again.segment_ids()) == {*sample.segment_ids(), "other"}


def test_a_sample_depends_on_the_seed_and_not_on_the_order_of_registration(
    dataset: DatasetEntry, client: CatalogClient, tmp_path: Path
) -> None:
    other = client.create_dataset("other")
    for name in reversed(dataset.segment_ids()):
        register(other, tmp_path / "others", {name: drive([float(name[1:])] * 5)})
    for seed in range(3):
        assert set(other.sample(4, seed=seed).segment_ids()) == set(dataset.sample(4, seed=seed).segment_ids())
    assert len({frozenset(dataset.sample(4, seed=seed).segment_ids()) for seed in range(5)}) > 1
    assert len(dataset.sample(fraction=0.5).segment_ids()) == 6
    view = dataset.filter_segments(["s1", "s2", "s3"]).filter_contents("/speed")
    assert set(view.sample(2).segment_ids()) < {"s1", "s2", "s3"}
    assert view.sample(2).reader("frame").to_arrow_table().num_rows == 60


def test_what_cannot_be_sampled(dataset: DatasetEntry, client: CatalogClient) -> None:
    with pytest.raises(UsageError, match="by: there is no column 'weather'"):
        dataset.sample(2, by="weather")
    with pytest.raises(UsageError, match="needs exactly one of n and fraction"):
        dataset.sample()
    with pytest.warns(ReadWarning, match="there are 0 rows"):
        assert client.create_dataset("empty").sample(2).segment_ids() == []


# --- labels


def counting(view: Any, table: Any = "labels") -> list[tuple[Any, ...]]:
    rows = view.labels(table).to_arrow_table().to_pylist()
    return sorted(
        ((row["rerun_segment_id"], row["start"], row["end"], row["verdict"], row["who"]) for row in rows), key=repr
    )


def test_of_each_part_and_person_the_last_label_counts(dataset: DatasetEntry, client: CatalogClient) -> None:
    assert dataset.label("labels", "s1", "accept", index="frame", note="good; isn't it?") == 1
    dataset.label("labels", ["s1", "s2"], "reject")
    dataset.label("labels", "s1", "accept", who="Ann")
    dataset.label("labels", "s1", "accept", start=3, end=9, who="Ann")
    dataset.label("labels", "s1", "unsure", start=3, end=9, who="Ann")
    dataset.label("labels", "s1", "accept", start=3, who="Ann")
    me = getpass.getuser()
    assert counting(dataset) == sorted(
        [
            ("s1", None, None, "reject", me),
            ("s2", None, None, "reject", me),
            ("s1", None, None, "accept", "Ann"),
            ("s1", 3, 9, "unsure", "Ann"),
            ("s1", 3, None, "accept", "Ann"),
        ],
        key=repr,
    )
    assert counting(dataset.filter_segments("s2")) == [("s2", None, None, "reject", me)]
    table = client.get_table("labels")
    assert table.reader().count() == 7, "every label stays"
    assert counting(dataset, table.at(2)) == [("s1", None, None, "accept", me)]
    made = table.to_arrow_reader().read_all()["made_at"].to_pylist()
    assert made == sorted(made) and timedelta() <= datetime.now(UTC) - made[-1] < timedelta(minutes=1)
    accepted = dataset.labels("labels").filter(col("verdict") == "accept")
    assert dataset.filter_segments(accepted).segment_ids() == ["s1"]
    query = """SELECT DISTINCT ON (rerun_segment_id, start, "end", who) verdict FROM labels
        ORDER BY rerun_segment_id, start, "end", who, made_at DESC"""
    verdicts = client.ctx.sql(query).to_arrow_table()["verdict"].to_pylist()
    assert sorted(verdicts) == sorted(row[3] for row in counting(dataset))


def test_of_labels_of_one_moment_the_later_row_counts(dataset: DatasetEntry, client: CatalogClient) -> None:
    dataset.label("labels", "s1", "accept", index="frame")
    table = client.get_table("labels")
    row = table.to_arrow_reader().read_all()
    for verdict in ("b", "a", "c"):
        table.append(row.set_column(3, row.schema.field(3), [[verdict]]))
    assert [row[3] for row in counting(dataset)] == ["c"]


def test_events_are_labelled_one_by_one(dataset: DatasetEntry, client: CatalogClient) -> None:
    events = dataset.find("/speed:Scalars:scalars > 1", index="time", executor="inline")
    count = events.count()
    assert dataset.label("labels", events, "accept", index="time") == count > 10
    assert dataset.label("labels", events.filter(col("peak") < 1.5), "reject") > 0
    spans = {(row["rerun_segment_id"], row["start"], row["end"]) for row in events.to_arrow_table().to_pylist()}
    assert {row[:3] for row in counting(dataset)} == spans and Counter(row[3] for row in counting(dataset))["reject"]
    assert client.get_table("labels").arrow_schema().field("start").type == pa.duration("ns")
    assert client.get_table("labels").list_versions().num_rows == 3, "each call is one commit"
    assert dataset.label("labels", events.filter(col("peak") > 1e9), "accept") == 0
    dataset.label("labels", client.get_table("labels").at(2), "accept", who="Ann")
    assert len(counting(dataset)) == 2 * count


@pytest.mark.parametrize("name", ["it's", 'quoted "segment"', "a/b c%20", "ü\n"])
def test_any_name_can_be_labelled(client: CatalogClient, tmp_path: Path, name: str) -> None:
    dataset = client.create_dataset("drives")
    register(dataset, tmp_path / "files", {name: drive([1.0])})
    dataset.label("labels", name, name, note=name, who=name, index="time", start=timedelta(seconds=1))
    assert counting(dataset) == [(name, timedelta(seconds=1), None, name, name)]


def test_no_label_of_writers_at_once_is_lost(dataset: DatasetEntry, client: CatalogClient) -> None:
    def write(person: int) -> None:
        mine = CatalogClient(client.url).get_dataset("drives")
        for number in range(5):
            mine.label("labels", f"s{number}", "accept", who=f"p{person}", index="frame")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert client.get_table("labels").reader().count() == len(counting(dataset)) == 20


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (("s99", "accept"), {}, NotFoundError, "there is no segment 's99' in dataset 'drives'.*Did you mean 's9'"),
        (("s1", " "), {}, UsageError, "a label needs a verdict"),
        (("s1", None), {}, TypeError, "argument 'verdict'"),
        ((["s1", 5], "accept"), {}, TypeError, "argument 'segments'"),
        (("s1", "accept"), {"start": 9, "end": 3}, UsageError, "is before its start"),
        (("s1", "accept"), {"start": 2.5}, TypeError, "start"),
        (
            ("s1", "accept"),
            {"start": datetime(2026, 1, 1, tzinfo=UTC)},
            UsageError,
            "not a value of type int64",
        ),
        (("s1", "accept"), {"index": "time"}, UsageError, "Use another table for labels by this index"),
        (("s1", "accept"), {"index": "none"}, UsageError, "there is no index 'none'"),
        ((pa.table({"segment": ["s1"]}), "accept"), {}, UsageError, "no column 'rerun_segment_id'"),
        (
            (pa.table({"rerun_segment_id": ["s1"], "start": [1], "end": [2]}), "a"),
            {"start": 1},
            UsageError,
            "have their own",
        ),
        ((pa.table({"rerun_segment_id": pa.array([None], pa.string())}), "a"), {}, UsageError, "a row has no"),
        (
            (pa.table({"rerun_segment_id": ["s1"], "start": pa.array([1], pa.timestamp("ns"))}), "accept"),
            {},
            UsageError,
            r"'start' has timestamp\[ns\], but the table of labels has int64",
        ),
    ],
)
def test_a_label_that_is_wrong_is_refused_and_nothing_written(
    dataset: DatasetEntry, client: CatalogClient, arguments: Any, options: Any, error: Any, message: str
) -> None:
    dataset.label("labels", "s1", "accept", index="frame", who="Ann")
    with pytest.raises(error, match=f"(?s){message}"):
        dataset.label("labels", *arguments, **options)
    assert counting(dataset) == [("s1", None, None, "accept", "Ann")]


def test_the_table_has_the_type_of_the_index(dataset: DatasetEntry, client: CatalogClient) -> None:
    with pytest.raises(UsageError, match=r"several types: frame \(int64\), time \(duration\[ns\]\)"):
        dataset.label("labels", "s1", "accept")
    assert "labels" not in client.table_names()
    client.create_table("other", pa.schema([("rerun_segment_id", pa.string())]))
    for call in (lambda: dataset.label("other", "s1", "accept"), lambda: dataset.labels("other")):
        with pytest.raises(UsageError, match="is not a table of labels: it has no column 'start'"):
            call()
    with pytest.raises(NotFoundError):
        dataset.labels("none")
    with pytest.raises(UsageError, match=r"NaT.* is not a value of type duration\[ns\]"):
        dataset.label("times", "s1", "accept", index="time", start=timedelta(1), end=np.datetime64("NaT"))


# --- sets


def test_a_set_that_is_tagged_gives_the_same_later(
    dataset: DatasetEntry, client: CatalogClient, tmp_path: Path
) -> None:
    events = dataset.find("/speed:Scalars:scalars > 1", index="time", window=0.5, executor="inline")
    dataset.label("labels", events, "accept", index="time")
    dataset.label("labels", events.filter(col("rerun_segment_id") == "s3"), "reject")
    accepted = dataset.labels("labels").filter(col("verdict") == "accept").to_arrow_table()
    chosen = client.create_table("chosen", accepted.schema)
    chosen.append(accepted)
    dataset.tag("v1")
    chosen.tag("v1")

    def curated() -> Any:
        return client.get_dataset("drives").at("v1").filter_segments(client.get_table("chosen").at("v1"))

    def samples() -> list[Any]:
        source = DataSource(curated(), episodes=client.get_table("chosen").at("v1"), episode_columns=["verdict"])
        sampling = FixedRateSampling(10)
        index = SampleIndex.build(source, "time", {"speed": Field(SPEED, NumericDecoder())}, timeline_sampling=sampling)
        return [repr(sample) for sample in SampleReader(index).read(np.arange(len(index))).values()]

    def exported(name: str) -> dict[str, bytes]:
        curated().write_lerobot(tmp_path / name, SPEC, executor="inline")
        files = (path for path in (tmp_path / name).rglob("*") if path.is_file())
        return {str(path.relative_to(tmp_path / name)): path.read_bytes() for path in files}

    ids = curated().segment_ids()
    assert ids and set(ids) == set(accepted["rerun_segment_id"].to_pylist()) and "s3" not in ids
    before = samples(), exported("before")
    assert len(before[0]) > len(ids)
    register(dataset, tmp_path / "files", {"new": drive([5.0] * 30), ids[0]: drive([7.0] * 30)})
    dataset.unregister(segments_to_drop=[ids[1]])
    chosen.overwrite(accepted.slice(0, 0))
    dataset.label("labels", ids[0], "reject")
    week = timedelta(0)
    for entry in (dataset, chosen):
        entry.do_maintenance(compact_fragments=True, cleanup_before=week, unsafe_allow_recent_cleanup=True)
    assert curated().segment_ids() == ids
    assert (samples(), exported("after")) == before


def test_labels_of_events_are_episodes_of_a_lerobot_dataset(dataset: DatasetEntry, tmp_path: Path) -> None:
    dataset.label("labels", "s1", "accept", index="time", start=timedelta(seconds=1), end=timedelta(seconds=2))
    dataset.label("labels", "s2", "accept", start=timedelta(seconds=2.5))
    dataset.label("labels", "s3", "reject", start=timedelta(seconds=1))
    dataset.label("labels", "s4", "accept")
    pq.write_table(dataset.labels("labels").to_arrow_table(), tmp_path / "labels.parquet")
    spec = {**SPEC, "episodes": {"by": "labels", "table": str(tmp_path / "labels.parquet"), "keep": ["accept"]}}
    report = dataset.write_lerobot(tmp_path / "set", spec, executor="inline")
    written = {each.recording: (each.start, each.end, each.written) for each in report.accounts if each.written}
    last = 2_901_000_000  # a hundredth of a frame after the last sample
    assert written == {
        "s1": (1_000_000_000, 2_000_000_000, 11),
        "s2": (2_500_000_000, last, 5),
        "s4": (0, last, 30),
    }
    bad = pq.read_table(tmp_path / "labels.parquet").slice(0, 1)
    bad = bad.set_column(2, "end", pa.array([0], pa.duration("ns")))
    pq.write_table(bad, tmp_path / "labels.parquet")
    with pytest.raises(ReadError, match="row 0: the label ends before it starts"):
        dataset.write_lerobot(tmp_path / "other", spec, executor="inline")
