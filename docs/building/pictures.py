"""The pictures of the documentation, made from real recordings of ``tests/data``; ``align`` is drawn of made-up times,
``speed`` of figures that ``python -m tests.run benchmarks table --saved docs/assets/speed.json`` has measured.

    python docs/building/pictures.py            # all of them, into docs/assets
    python docs/building/pictures.py plan store # some

``align``, ``plan``, ``speed`` and ``store`` need nothing but chunkmill. ``report`` needs Chromium, ``notebook`` also
nbconvert and ipykernel.
``viewer`` needs rerun-sdk, Pillow and a graphics driver; without a GPU Mesa's lavapipe will do (``apt install
mesa-vulkan-drivers``). A picture whose program is missing stays as it is in the repository, and the script says so.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import alignment
from browser import Browser, find_browser
from chunkmill import (
    DeriveLens,
    Ingest,
    LazyChunkStream,
    McapReader,
    RecordingStore,
    ViewerClient,
    load_pipeline,
    send_chunks,
    stop_session,
)
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.locations import located
from chunkmill.engine.stream import sink_of
from chunkmill.engine.stream.drawing import Arrow, Box, Graph, draw_graph, graph_of
from chunkmill.engine.units import size

REPOSITORY = Path(__file__).resolve().parent.parent.parent
DATA = REPOSITORY / "tests" / "data"
ASSETS = REPOSITORY / "docs" / "assets"
MANY_SENSORS = "mcap/rerun__rosbag2_2025_09_10-13_03_56_0.mcap"


class MissingProgramError(Exception):
    """A picture cannot be made on this machine."""


def pipeline(stream: LazyChunkStream) -> LazyChunkStream:
    """The pipeline of ``docs/viewer.md`` and more: something of every kind of step."""
    speed = DeriveLens("std_msgs.msg.Float32:message").to_scalars(".data", unit="m/s", to_unit="km/h")
    gps, car = stream.filter(is_static=False).split(content="/nissan/gps/**")
    return LazyChunkStream.merge(
        gps.drop(content="/nissan/gps/duro/mag"), car.lenses(speed, output_mode="forward_unmatched")
    )


def plan(folder: Path) -> None:
    """A pipeline as a plan."""
    shutil.copy(DATA / "demo.mcap", folder)
    graph = graph_of(sink_of(pipeline(McapReader(folder / "demo.mcap").stream())))
    boxes = tuple(replace(box, detail=box.detail.replace(f"{folder}/", "")) for box in graph.boxes)
    drawn = draw_graph(replace(graph, boxes=boxes), "The plan of a pipeline, from its source to its output")
    (ASSETS / "plan.svg").write_text(drawn, encoding="utf-8")


def store(folder: Path) -> None:
    """The files of a store into which two recordings were ingested, and which of them names which."""
    landing, lake = folder / "landing", folder / "lake"
    landing.mkdir()
    for source, name in (("demo.mcap", "car.mcap"), (MANY_SENSORS, "lab.mcap")):
        shutil.copy(DATA / source, landing / name)
        Ingest(landing, into=lake, settle=0, executor="inline").start(once=True).await_termination()
    boxes: dict[str, Box] = {}
    arrows: dict[tuple[str, str], None] = {}
    for path in sorted((lake / "versions").iterdir()):
        version = json.loads(path.read_text(encoding="utf-8"))
        number, held = version["number"], f"{version['recordings']} recording{'s' * (version['recordings'] > 1)}"
        boxes[path.name] = Box("versions/", f"{path.name}: {held}")
        tables = [table[0] for table in version["tables"]]
        for table in tables:
            boxes[table] = Box("tables/", f"{_shorter(table)}: {held}")
            arrows[path.name, table] = None
        for entry in RecordingStore.open(lake, version=number):
            source = Path(entry.source).name
            boxes[entry.manifest] = Box("manifests/", f"{_shorter(entry.manifest)}: {entry.chunks} chunks of {source}")
            arrows[tables[-1], entry.manifest] = None
            for shard in entry.shards:
                boxes[shard] = Box("shards/", f"{_shorter(shard)}: {size((lake / 'shards' / shard).stat().st_size)}")
                arrows[entry.manifest, shard] = None
    at = {name: i for i, name in enumerate(boxes)}
    graph = Graph(tuple(boxes.values()), tuple(Arrow(at[start], at[end]) for start, end in arrows))
    drawn = draw_graph(graph, "The files of a store: versions name tables, tables manifests, manifests shards")
    (ASSETS / "store.svg").write_text(drawn, encoding="utf-8")


def _shorter(name: str) -> str:
    stem, _, suffix = name.partition(".")
    return f"{stem[:4]}….{suffix}"


def report(folder: Path) -> None:
    """The page of a run over a folder of recordings."""
    program = find_browser()
    if program is None:
        raise MissingProgramError("Chromium is not installed")
    (folder / "drives").mkdir()
    for path in (DATA / "mcap").glob("*.mcap"):
        if path.stat().st_size > 50_000:
            shutil.copy(path, folder / "drives" / path.name.partition("__")[2])
    shutil.copy(DATA / "demo.mcap", folder / "drives")
    with contextlib.chdir(folder), warnings.catch_warnings(action="ignore"):
        for output in ("warm", "converted"):  # the second run is that of a session which has started
            command = ["convert", "drives", "-o", output, "--report", "run.html", "--executor", "spark"]
            commands([*command, "--master", "local[2]"], standalone_mode=False)
    stop_session()
    page = folder / "run.html"
    page.write_text(page.read_text(encoding="utf-8").replace(f"{folder}/", ""), encoding="utf-8")
    with Browser(program) as browser:
        tab = browser.open()
        tab.look(1000, 900)
        tab.go(page.as_uri())
        (ASSETS / "report.webp").write_bytes(tab.picture())


SPEED = {
    "drive": "MCAP to RRD, 300 MB, mostly numbers",
    "drive /imu/**": "the same, only /imu/**",
    "mixture": "MCAP to RRD, 300 MB, mostly images",
    "mixture collect": "the same, optimised for object stores",
    "RRD keep a subtree": "RRD to RRD, 400 MB, keep a subtree",
    "RRD drop a camera": "RRD to RRD, 400 MB, drop a camera",
    "RRD collect": "RRD to RRD, optimised for object stores",
    "RRD lens": "RRD to RRD, a lens on all scalars",
    "Parquet 1 M x 40": "Parquet to RRD, 1 million rows",
}
_LABELS, _BARS, _ROW = 290, 400, 38
_SPEED_STYLE = (
    "text{font:13px sans-serif;fill:#57606a}.seconds{font-size:11px}.ours{fill:#2f81f7}.theirs{fill:#9aa4af}"
    "@media(prefers-color-scheme:dark){text{fill:#adbac7}}"
)


def speed(folder: Path) -> None:  # noqa: ARG001 (it needs none)
    """Seconds of chunkmill and of rerun-sdk for the rows of ``benchmarks/table.py``."""
    saved = json.loads((ASSETS / "speed.json").read_text(encoding="utf-8"))
    rows = {key.partition(", spark, disk")[0]: figures for key, figures in saved.items() if ", spark, disk" in key}
    longest = max(figures[f"{side} wall"] for figures in rows.values() for side in ("ours", "theirs"))
    drawn = []
    for side, name, left in (("ours", "chunkmill", _LABELS), ("theirs", "rerun-sdk", _LABELS + 100)):
        drawn.append(f'<rect class="{side}" x="{left}" y="8" width="12" height="12"/>')
        drawn.append(f'<text x="{left + 17}" y="19">{name}</text>')
    for at, row in enumerate(name for name in SPEED if name in rows):
        top = 34 + at * _ROW
        drawn.append(f'<text x="{_LABELS - 8}" y="{top + 17}" text-anchor="end">{SPEED[row]}</text>')
        for side, y in (("ours", top), ("theirs", top + 13)):
            seconds = rows[row][f"{side} wall"]
            width = max(round(seconds / longest * _BARS), 1)
            drawn.append(f'<rect class="{side}" x="{_LABELS}" y="{y}" width="{width}" height="12"/>')
            drawn.append(f'<text class="seconds" x="{_LABELS + width + 5}" y="{y + 10}">{seconds:.2f} s</text>')
    width, height = _LABELS + _BARS + 70, 42 + len(rows) * _ROW
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">'
    title = "<title>Seconds that chunkmill and rerun-sdk take for the same work</title>"
    lines = [head, title, f"<style>{_SPEED_STYLE}</style>", *drawn, "</svg>", ""]
    (ASSETS / "speed.svg").write_text("\n".join(lines), encoding="utf-8")


def align(folder: Path) -> None:
    """Rules and tolerances of an export's alignment."""
    for draw in (alignment.rules, alignment.tolerance, alignment.episode):
        (ASSETS / f"align-{draw.__name__}.svg").write_text(draw(folder), encoding="utf-8")


NOTEBOOK = (
    "from chunkmill import LazyChunkStream, McapReader, RrdReader\n\nreader = McapReader('demo.mcap')\nreader",
    """gps, car = reader.stream().filter(is_static=False).split(content='/nissan/gps/**')
stream = LazyChunkStream.merge(gps, car.map(lambda chunk: chunk))
stream""",
    "stream.to_chunks(executor='inline')[1]",
    "stream.write_rrd('demo.rrd', application_id='demo', recording_id='drive').rows",
    "RrdReader('demo.rrd').store()",
)


def notebook(folder: Path) -> None:
    """A notebook that was run, light and dark."""
    try:
        import nbformat
        from nbclient import NotebookClient
        from nbconvert import HTMLExporter
    except ImportError as error:
        raise MissingProgramError(f"{error.name} is not installed") from error
    program = find_browser()
    if program is None:
        raise MissingProgramError("Chromium is not installed")
    shutil.copy(DATA / "demo.mcap", folder)
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in NOTEBOOK])
    NotebookClient(book, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()
    with Browser(program) as browser:
        tab = browser.open()
        tab.look(1000, 900)
        for theme in ("light", "dark"):
            page = folder / f"{theme}.html"
            text: str = HTMLExporter(theme=theme).from_notebook_node(book)[0]
            page.write_text(text.replace(str(located(str(folder / "demo.mcap"))), "demo.mcap"), encoding="utf-8")
            tab.go(page.as_uri())
            (ASSETS / f"notebook-{theme}.webp").write_bytes(tab.picture(whole=True))


def viewer(folder: Path) -> None:
    """The viewer with what the pipeline of ``docs/viewer.md`` writes."""
    try:
        import rerun as rr
        import rerun.blueprint as rrb
        from PIL import Image
    except ImportError as error:
        raise MissingProgramError(f"{error.name} is not installed") from error
    (folder / "drive.py").write_text(pipeline_of_the_page(), encoding="utf-8")
    stream = load_pipeline(folder / "drive.py").apply(McapReader(DATA / "demo.mcap").stream())
    whole = rrb.VisibleTimeRange(
        "message_log_time", start=rrb.TimeRangeBoundary.infinite(), end=rrb.TimeRangeBoundary.infinite()
    )
    above = rrb.EyeControls3D(position=(-14, -10, 12), look_target=(28, 0, 0), eye_up=(0, 0, 1))
    layout = rrb.Horizontal(
        rrb.Spatial3DView(origin="/", contents="/path", name="path", time_ranges=whole, eye_controls=above),
        rrb.Vertical(
            rrb.TimeSeriesView(origin="/nissan/vehicle_speed", name="speed, km/h"),
            rrb.TimeSeriesView(origin="/nissan/gps/duro/imu", name="IMU"),
        ),
    )
    picture = folder / "viewer.png"
    try:
        with ViewerClient.spawn(headless=True, port=_free_port(), hide_welcome_screen=True) as client:
            recording = rr.RecordingStream("demo", recording_id="drive")
            recording.connect_grpc(client.url)
            recording.send_blueprint(rrb.Blueprint(layout, collapse_panels=True))
            send_chunks(stream.to_chunks(executor="inline"), recording=recording)
            recording.flush()
            time.sleep(15)  # nothing says that all of the data was drawn, and that notices have gone
            client.save_screenshot(str(picture))
            recording.disconnect()
    except (RuntimeError, ConnectionError, TimeoutError) as error:
        raise MissingProgramError(f"the viewer does not run here ({error}); it needs a graphics driver") from error
    with Image.open(picture) as taken:
        below_title = taken.convert("RGB").crop((0, 37, *taken.size))
        below_title.resize((1280, below_title.height * 1280 // below_title.width), Image.Resampling.LANCZOS).save(
            ASSETS / "viewer.webp", quality=80, method=6
        )


def pipeline_of_the_page() -> str:
    """The pipeline file that ``docs/viewer.md`` shows."""
    text = (REPOSITORY / "docs" / "viewer.md").read_text(encoding="utf-8")
    found = re.search(r"write_text\(('''|\"\"\")(.*?)\1\)", text, re.DOTALL)
    assert found is not None
    return found[2]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


PICTURES: dict[str, Callable[[Path], None]] = {
    "align": align,
    "notebook": notebook,
    "plan": plan,
    "report": report,
    "speed": speed,
    "store": store,
    "viewer": viewer,
}


def main(names: list[str]) -> None:
    """Make the pictures of these names, by default all."""
    for name in names or PICTURES:
        with tempfile.TemporaryDirectory(prefix="chunkmill-pictures-") as folder:
            try:
                PICTURES[name](Path(folder))
            except MissingProgramError as error:
                print(f"{name}: left as it is: {error}")
            else:
                print(f"{name}: made")


if __name__ == "__main__":
    main(sys.argv[1:])
