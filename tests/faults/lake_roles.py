"""The processes of ``lake_hour.py``: each does one thing with a lake again and again, and may be killed at any moment.

    python lake_roles.py ROLE FOLDER

What it did is a line of JSON in ``FOLDER/log/ROLE``; what is wrong is a line with ``wrong``, and ends the run.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from lake_content import (
    FRAMES,
    TICKS,
    brightness,
    embedding,
    number_of,
    segment_of,
    write_drive,
    write_labels,
    wrong_frames,
    wrong_rows,
    wrong_view,
)

KEPT: Final = timedelta(seconds=60)
"""Versions are kept that long, so a query or a job has that long to end."""
PHOTOS: Final = "/pose:photo"
ROWS_OF_AN_INDEX: Final = 400


class Place:
    """The folders of a run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lake = root / "lake"
        self.landing = root / "landing"
        self.drafts = root / "drafts"
        self.labels = root / "labels"
        self.views = root / "views"
        self.ledger = root / "ledger"
        self.log = root / "log"
        self.settings: dict[str, Any] = {}

    @classmethod
    def make(cls, root: Path, **settings: Any) -> Place:
        """Make them all, and keep the settings of the run beside them."""
        place = cls(root)
        for folder in (place.lake, place.landing, place.drafts, place.labels, place.views, place.log):
            folder.mkdir(parents=True)
        place.ledger.touch()
        (root / "settings.json").write_text(json.dumps(settings))
        place.settings = settings
        return place

    @classmethod
    def known(cls, root: Path) -> Place:
        """Those of a run that was begun."""
        place = cls(root)
        place.settings = json.loads((root / "settings.json").read_text())
        return place

    @property
    def ended(self) -> bool:
        """Whether everybody is to end."""
        return (self.root / "stop").exists()

    def recorded(self) -> list[int]:
        """The numbers of all drives that have landed, or are about to."""
        return [int(line) for line in self.ledger.read_text().split()]


class Role:
    """What one process does, and its log."""

    def __init__(self, name: str, place: Place) -> None:
        self.place = place
        self.draw = random.Random(f"{os.getpid()}:{time.time_ns()}")
        self._log = (place.log / name).open("a", buffering=1)

    def run(self) -> None:
        """Do it until everybody ends."""
        while not self.place.ended:
            began = time.time()
            try:
                what, count = self.step()
            except Exception as error:
                if not self.passes(error):
                    raise
                self.tell(began, "refused", 1, error=f"{type(error).__name__}: {error}"[:300])
                time.sleep(0.5)
            else:
                self.tell(began, what, count)
                time.sleep(self.pause())

    def step(self) -> tuple[str, int]:
        """Do it once: what was done, and how many of it."""
        raise AssertionError(type(self).__name__)

    def pause(self) -> float:
        """Seconds until it is done again."""
        return self.draw.uniform(0.5, 1.5)

    def passes(self, error: Exception) -> bool:
        """Whether an error says that trying again helps."""
        return bool(getattr(error, "transient", False))

    def tell(self, began: float, what: str, count: int, **more: str) -> None:
        """Write a line of the log."""
        seconds = round(time.time() - began, 4)
        self._log.write(json.dumps({"at": began, "what": what, "count": count, "seconds": seconds, **more}) + "\n")

    def wrong(self, text: str) -> None:
        """Tell what is wrong, which ends the run."""
        self.tell(time.time(), "wrong", 1, error=text)


class Recorder(Role):
    """Lets recordings land: each is written beside, noted, and renamed, so that none lands twice."""

    def step(self) -> tuple[str, int]:
        place = self.place
        noted = place.recorded()
        for number in noted[-1:]:
            self._land(number)  # one was noted when this was killed, and may not have landed
        number = noted[-1] + 1 if noted else 0
        draft = place.drafts / f"{segment_of(number)}.rrd"
        write_drive(draft, number)
        with place.ledger.open("a") as ledger:
            ledger.write(f"{number}\n")
        self._land(number)
        return "landed", 1

    def _land(self, number: int) -> None:
        draft = self.place.drafts / f"{segment_of(number)}.rrd"
        if draft.exists():
            draft.rename(self.place.landing / draft.name)

    def pause(self) -> float:
        return float(self.place.settings["every"])


class OfLake(Role):
    """One that has the lake open."""

    def __init__(self, name: str, place: Place) -> None:
        from chunkmill import CatalogClient

        super().__init__(name, place)
        self.client = CatalogClient(place.lake)
        self.dataset = self.client.create_dataset("drives", exist_ok=True)

    def segments(self) -> list[str]:
        """The ids of all recordings; none may be there that has not landed."""
        found = self.dataset.segment_ids()
        strange = {*map(number_of, found)} - {*self.place.recorded()}
        if strange or len(found) != len(set(found)):
            self.wrong(f"there are recordings that never landed, or some twice: {sorted(strange)[:10]}")
        return found


class Labeller(OfLake):
    """Registers a layer of labels for each recording that has none."""

    def step(self) -> tuple[str, int]:
        rows = self.dataset.manifest().to_arrow_table().select(["rerun_segment_id", "rerun_layer_name"]).to_pylist()
        labelled = {row["rerun_segment_id"] for row in rows if row["rerun_layer_name"] == "labels"}
        missing = sorted({row["rerun_segment_id"] for row in rows} - labelled)[:20]
        files = []
        for segment in missing:
            path = self.place.labels / f"{segment}.rrd"
            if not path.exists():
                draft = path.with_suffix(f".{os.getpid()}")
                write_labels(draft, number_of(segment))
                draft.rename(path)
            files.append(str(path))
        if files:
            self.dataset.register(files, layer_name="labels", on_duplicate="skip").wait()
        return "labelled", len(files)


class Asker(OfLake):
    """Asks the lake for recordings, and compares."""

    def step(self) -> tuple[str, int]:
        found = self.segments()
        some = self.draw.sample(found, min(3, len(found)))
        for segment in some:
            view = self.dataset.filter_segments([segment]).filter_contents("/pose/**")
            rows = view.reader("tick", executor="inline").sort("tick").to_arrow_table()
            self._compare(segment, rows.to_pylist())
        return "asked", len(some)

    def _compare(self, segment: str, rows: list[dict[str, Any]]) -> None:
        text = wrong_rows(number_of(segment), iter(rows))
        if text:
            self.wrong(text)


class Viewer(Role):
    """Asks the served lake for recordings by Rerun's SDK, and compares."""

    def step(self) -> tuple[str, int]:
        from rerun.catalog import CatalogClient

        dataset = CatalogClient(self.place.settings["url"]).get_dataset("drives")
        found = dataset.segment_ids()
        some = self.draw.sample(found, min(2, len(found)))
        for segment in some:
            view = dataset.filter_segments([segment]).filter_contents(["/pose/**"])
            rows = view.reader(index="tick").sort("tick").to_arrow_table().to_pylist()
            text = wrong_rows(number_of(segment), iter(rows))
            if text:
                self.wrong(f"served: {text}")
        return "viewed", len(some)

    def passes(self, error: Exception) -> bool:
        """The server is killed, too; and there is no dataset, index or column before the first recording is there."""
        texts = (
            "connect",
            "transport",
            "unavailable",
            "broken pipe",
            "reset",
            "not found",
            "closed",
            "no index",
            "tick",
        )
        return any(text in str(error).lower() for text in texts)


class Embedder(OfLake):
    """Keeps the table of frames: rows of new recordings, and the column that a function computes of them."""

    def step(self) -> tuple[str, int]:
        entry = self.frames()
        there = {row["drive"] for row in entry.reader().select("drive").distinct().to_pylist()}
        missing = sorted(set(self.segments()) - there)[:20]
        for segment in missing:
            view = self.dataset.filter_segments([segment]).filter_contents("/pose/**")
            rows = view.reader("tick", executor="inline").to_arrow_table()
            photos = [value[0] for value in rows[PHOTOS].to_pylist()]
            columns = {"drive": [segment] * len(photos), "tick": rows["tick"], "photo": photos}
            entry.upsert(pa_table(columns))
        table = entry.computed(executor=self.place.settings["executor"])
        if "embedding" not in table.schema.names:
            table.add_columns({"embedding": embedding})
        table.backfill("embedding", udf=embedding)
        some = [*missing, *self.draw.sample(sorted(there), min(10, len(there)))]
        listed = ", ".join(f"'{segment}'" for segment in some)
        text = some and wrong_frames(table.search(None).where(f"drive IN ({listed})").to_arrow(), complete=False)
        if text:
            self.wrong(text)
        return "embedded", len(missing) * TICKS

    def frames(self) -> Any:
        """The table; it is made where it is missing."""
        if "frames" not in self.client.table_names():
            self.client.create_table("frames", FRAMES)
        return self.client.get_table("frames")


class Refresher(OfLake):
    """Keeps a view of every other frame, with a column that a function computes, up with the table of frames."""

    def step(self) -> tuple[str, int]:
        view = self.view()
        if view is None:
            return "refreshed", 0
        count = view.refresh().rows_refreshed
        rows = view.to_arrow()
        some = self.draw.sample(range(rows.num_rows), min(200, rows.num_rows))
        text = some and wrong_view(rows.take(some), None)
        if text:
            self.wrong(text)
        return "refreshed", count

    def view(self) -> Any:
        """The view; it is made where it is missing and there is something to see."""
        from chunkmill.engine.tables import connect

        options: dict[str, Any] = {"udf_modules": ("lake_content",), "executor": self.place.settings["executor"]}
        views = connect(str(self.place.views), **options)
        if "light" in views.table_names():
            return views.open_table("light")
        if "frames" not in self.client.table_names():
            return None
        frames = self.client.get_table("frames").computed()
        columns = {"drive": "drive", "tick": "tick", "light": (brightness, ["photo"])}
        return views.create_materialized_view("light", frames.search(None).where("tick % 2 = 0").select(columns))


class Searcher(OfLake):
    """Searches the table of frames for some of its own embeddings, with an index once there are a few hundred rows."""

    def step(self) -> tuple[str, int]:
        found = self.table()
        if found is None:
            return "searched", 0
        drive = f"drive = '{segment_of(self.draw.choice(self.place.recorded()))}'"
        some = found.search(None).where(f"{drive} AND embedding IS NOT NULL").limit(3).to_arrow()
        for row in some.to_pylist():
            near = found.search(row["embedding"], vector_column_name="embedding").metric("l2").refine_factor(50)
            first = near.nprobes(1000).limit(1).to_arrow().to_pylist()
            if not first or first[0]["_distance"] > 1e-6:
                self.wrong(f"an embedding of {drive} is not found again: {first}")
        return "searched", some.num_rows

    def table(self) -> Any:
        """The table, with an index as soon as one can be trained."""
        if "frames" not in self.client.table_names():
            return None
        table = self.client.get_table("frames").computed()
        if "embedding" not in table.schema.names:
            return None
        marker = self.place.root / "indexed"
        if not marker.exists() and table.count_rows("embedding IS NOT NULL") >= ROWS_OF_AN_INDEX:
            table.create_index(vector_column_name="embedding", num_partitions=4, num_sub_vectors=2)
            marker.touch()
        return table


class Keeper(OfLake):
    """Compacts the dataset and the table, and removes what only old versions need."""

    def step(self) -> tuple[str, int]:
        old = datetime.now(UTC) - KEPT
        options: dict[str, Any] = {"cleanup_before": old, "unsafe_allow_recent_cleanup": True}
        self.dataset.do_maintenance(compact_fragments=True, **options)
        if "frames" in self.client.table_names():
            self.client.get_table("frames").do_maintenance(compact_fragments=True, **options)
        return "kept", 1

    def pause(self) -> float:
        return self.draw.uniform(3, 6)


def pa_table(columns: dict[str, Any]) -> Any:
    """A table of frames."""
    import pyarrow as pa

    return pa.table(columns, schema=FRAMES)


ROLES: Final[dict[str, Callable[[str, Place], Role]]] = {
    "record": Recorder,
    "label": Labeller,
    "ask": Asker,
    "view": Viewer,
    "embed": Embedder,
    "refresh": Refresher,
    "search": Searcher,
    "keep": Keeper,
}


def commands(place: Place) -> Iterator[tuple[str, list[str]]]:
    """The name and the command of each process, those of the command line among them."""
    python = sys.executable
    main = "from chunkmill.engine.cli import main; main()"
    port = place.settings["url"].rpartition(":")[2]
    ingest = ["ingest", str(place.landing), "--into", str(place.lake), "--dataset", "drives", "--every", "1s", "-q"]
    ingest += ["--source-done", "delete", "--settle", "0s", "--executor", place.settings["executor"]]
    yield "ingest", [python, "-c", main, *ingest]
    serve = ["serve", str(place.lake), "--create", "--allow", str(place.root), "--port", port, "-q"]
    yield "serve", [python, "-c", main, *serve]
    for name in ROLES:
        yield name, [python, __file__, name, str(place.root)]


def main() -> int:
    """Play one role."""
    name, folder = sys.argv[1:]
    warnings.simplefilter("ignore")
    ROLES[name](name, Place.known(Path(folder))).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
