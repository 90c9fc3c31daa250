"""Look at a served lake with Rerun's native viewer and in Chromium, and at Rerun's own server beside it.

    python tests/conformance/viewers.py FOLDER [--viewer native|browser]

The same recordings and blueprint, made here, are registered with both servers by the SDK, one server after the other
on the same port. Each viewer opens the catalog, the table of segments, a segment (image, points, transforms, plots,
log), and one that a default blueprint lays out; then, while it shows the table, a segment is registered and a dataset
made. The native viewer tells what is on its screen as text, which is compared word by word but for ids and times of
registration; screens are compared as pictures. No view, console or log may complain of what it does not complain of
with Rerun's server, too, and our server's log has no warning at all.

Needs rerun-sdk, Pillow, Chromium, a software driver for Vulkan (``mesa-vulkan-drivers``), and Xvfb for the native
viewer to have a window. Pictures and logs stay in FOLDER. Prints a line for each comparison, and ends with 1 where one
fails.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from native_viewer import NativeViewer, free_port

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs" / "building"))

from browser import WEBGL, Browser, Page, find_browser

WIDTH, HEIGHT = 1280, 800
REFRESH = (WIDTH - 19, HEIGHT - 12)
"""Where the button is that reads a table again."""
MOST_DIFFERENT = 0.01
"""The share of a screen's pixels that may differ, for ids and times. A view that is missing is more, a row is not."""
SECONDS = 60.0
PLACES = {
    "catalog": "",
    "segments": "/entry/{drives}",
    "segment": "/dataset/{drives}?segment_id=drive-1#when=frame@30",
    "designed": "/dataset/{designed}?segment_id=drive-2#when=frame@30",
}
CHANGING = (
    (re.compile(r"\b[0-9A-Fa-f]{32}\b"), "ID"),
    (re.compile(r"\d\d:\d\d:\d\d\.\d{3}\W\d{3}Z"), "TIME"),
    (re.compile(r"just now|(less than a|\d+) (second|minute)s? ago"), "AGO"),
)


@dataclass
class Seen:
    """What a viewer showed of a server."""

    pictures: dict[str, Path] = field(default_factory=dict)
    texts: dict[str, list[str]] = field(default_factory=dict)
    notes: dict[str, bool] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Lake:
    """A running server: its address, that of a page with the viewer, and what is done beside a viewer."""

    url: str
    page: str
    ids: dict[str, str]
    register: Callable[[], Any]
    """Register a fourth segment."""
    create: Callable[[str], Any]
    """Make a dataset of a name."""

    def place(self, name: str) -> str:
        """The address of a place."""
        return self.url + PLACES[name].format(**self.ids)


def write_files(folder: Path) -> None:
    """Write four recordings and a blueprint."""
    import numpy as np
    import rerun as rr
    import rerun.blueprint as rrb

    folder.mkdir(parents=True, exist_ok=True)
    for number in (1, 2, 3, 4):
        recording = rr.RecordingStream("viewers", recording_id=f"drive-{number}")
        recording.save(folder / f"drive-{number}.rrd")
        recording.log("world", rr.ViewCoordinates.RIGHT_HAND_Z_UP, static=True)
        points = np.random.default_rng(number).normal(size=(2000, 3)).astype(np.float32)
        colors = (255 * (points - points.min(0)) / np.ptp(points, 0)).astype(np.uint8)
        image = np.zeros((96, 128, 3), np.uint8)
        image[..., 0], image[..., 1] = np.arange(128) * 2, (np.arange(96) * 2)[:, None]
        for frame in range(60):
            angle = frame * np.pi / 30
            recording.set_time("frame", sequence=frame)
            turned = rr.RotationAxisAngle([0, 0, 1], radians=angle)
            place = [3 * np.cos(angle), 3 * np.sin(angle), 0.5]
            recording.log("world/robot", rr.Transform3D(translation=place, rotation=turned))
            recording.log("world/robot/body", rr.Boxes3D(half_sizes=[[0.5, 0.3, 0.2]], colors=[[255, 120, 0]]))
            recording.log("world/cloud", rr.Points3D(points + np.float32(0.02 * frame), colors=colors, radii=0.03))
            marked = image.copy()
            marked[30:60, 2 * frame % 100 : 2 * frame % 100 + 20] = 255, 255, 0
            recording.log("camera", rr.Image(marked))
            recording.log("plots/speed", rr.Scalars(np.sin(angle * number)))
            recording.log("plots/heat", rr.Scalars(np.cos(angle)))
            recording.log("log", rr.TextLog(f"frame {frame}"))
        recording.disconnect()
    views = (
        rrb.Spatial3DView(origin="/world", name="the world"),
        rrb.Spatial2DView(origin="/camera", name="the camera"),
        rrb.TimeSeriesView(origin="/plots", name="the plots"),
        rrb.TextLogView(origin="/log", name="the log"),
    )
    panels = rrb.TimePanel(timeline="frame", state="collapsed"), rrb.SelectionPanel(state="collapsed")
    rrb.Blueprint(rrb.Grid(*views), *panels).save("viewers", str(folder / "default.rbl"))


@contextlib.contextmanager
def served(words: list[str], port: int, page: str, files: Path, log: Path) -> Iterator[Lake]:
    """A running server with the recordings registered."""
    from rerun.catalog import CatalogClient

    url = f"rerun+http://127.0.0.1:{port}"
    with log.open("wb") as output, subprocess.Popen(words, stdout=output, stderr=output) as process:
        try:
            ends = time.monotonic() + SECONDS
            while True:
                try:
                    client = CatalogClient(url)
                    client.dataset_names()
                    break
                except Exception as error:
                    if process.poll() is not None or time.monotonic() > ends:
                        raise RuntimeError(f"{words[0]} does not answer:\n{log.read_text()}") from error
                    time.sleep(0.3)
            drives, designed = client.create_dataset("drives"), client.create_dataset("designed")
            places = {number: (files / f"drive-{number}.rrd").as_uri() for number in (1, 2, 3, 4)}
            drives.register([places[number] for number in (1, 2, 3)]).wait()
            designed.register([places[number] for number in (1, 2)]).wait()
            designed.register_blueprint((files / "default.rbl").as_uri(), set_default=True)

            yield Lake(
                url,
                page,
                {"drives": str(drives.id), "designed": str(designed.id)},
                lambda: drives.register([places[4]]).wait(),
                client.create_dataset,
            )
        finally:
            process.terminate()
            process.wait()


def settled(picture: Callable[[], bytes]) -> bytes:
    """A picture once it is the same as two seconds before, or is still changing after a while."""
    ends, before, now = time.monotonic() + SECONDS, b"", picture()
    while now != before and time.monotonic() < ends:
        time.sleep(2)
        before, now = now, picture()
    return now


def look_natively(lake: Lake, program: str, folder: Path) -> Seen:
    """Look with the native viewer."""
    seen = Seen()

    def keep(viewer: NativeViewer, name: str) -> None:
        viewer.tool("hover", pos={"x": 3, "y": HEIGHT - 3})
        seen.pictures[name] = folder / f"native-{name}.png"
        settled(lambda: viewer.picture(seen.pictures[name]))
        seen.texts[name] = sorted(f"{role} {changing(text)}" for role, text in viewer.texts())
        seen.complaints += [f"a view of {name}: {report}" for report in viewer.reports()]

    with NativeViewer(program, folder / "native.log", WIDTH, HEIGHT) as viewer:
        viewer.open(lake.url)
        viewer.shows("designed", 20)
        time.sleep(8)  # its notices of the start go away
        for name in PLACES:
            viewer.open(lake.place(name))
            keep(viewer, name)
        viewer.open(lake.place("segments"))
        viewer.shows("drive-3", 20)
        lake.register()
        seen.notes["a new segment shows by itself"] = viewer.shows("drive-4", 8)
        viewer.tool("click", label_contains="Refresh table")
        seen.notes["a new segment shows when the table is read again"] = viewer.shows("drive-4", 20)
        lake.create("meanwhile")
        seen.notes["a new dataset shows by itself"] = viewer.shows("meanwhile", 20)
        keep(viewer, "changed")
        told = [f"{level} {where}: {changing(text)}" for level, where, text in viewer.logs() if level != "INFO"]
        seen.complaints += [text.replace(lake.url.rpartition(":")[2], "PORT") for text in told]
    return seen


def look_in_browser(lake: Lake, program: str, folder: Path) -> Seen:
    """Look in Chromium."""
    seen = Seen()

    def keep(tab: Page, name: str) -> None:
        tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=3, y=HEIGHT - 3)
        seen.pictures[name] = folder / f"browser-{name}.webp"
        seen.pictures[name].write_bytes(settled(lambda: tab.picture(quality=100)))
        seen.complaints += [changing(error.partition("\n")[0]) for error in tab.errors]

    wait_for(lake.page)
    with Browser(program, WEBGL) as browser:
        tab = browser.open()
        tab.look(WIDTH, HEIGHT)
        for name in (*PLACES, "segments"):
            url = urllib.parse.quote(lake.place(name), safe="")
            tab.go(f"{lake.page}/?url={url}")
            tab.value_of("new Promise(done => setTimeout(done, 12000))")  # it draws nothing for a while
            if "segments" not in seen.pictures or name != "segments":
                keep(tab, name)
        lake.register()
        lake.create("meanwhile")
        tab.value_of("new Promise(done => setTimeout(done, 4000))")
        for kind in ("mousePressed", "mouseReleased"):
            x, y = REFRESH
            tab.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        keep(tab, "changed")
    return seen


def wait_for(address: str) -> None:
    """Wait until a server answers there."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    ends = time.monotonic() + SECONDS
    while True:
        try:
            opener.open(f"{address}/version").close()
            return
        except OSError:
            if time.monotonic() > ends:
                raise
            time.sleep(0.3)


def changing(text: str) -> str:
    """A text without what is another each time."""
    for pattern, name in CHANGING:
        text = pattern.sub(name, text)
    return text


def different(first: Path, second: Path) -> float:
    """The share of the pixels of two pictures that differ by more than smoothing does."""
    from PIL import Image, ImageChops

    one, other = (Image.open(io.BytesIO(path.read_bytes())).convert("RGB") for path in (first, second))
    if one.size != other.size:
        return 1.0
    changes = ImageChops.difference(one, other).convert("L").point(lambda value: 255 * (value > 24))
    return changes.histogram()[255] / (one.width * one.height)


def compared(ours: Seen, theirs: Seen) -> Iterator[tuple[bool, str]]:
    """Whether each comparison holds, and what it compared."""
    for name, picture in ours.pictures.items():
        share = different(picture, theirs.pictures[name])
        yield share <= MOST_DIFFERENT, f"{name}: {share:.3%} of the pixels differ"
    for name, texts in ours.texts.items():
        extra = [text for text in texts if text not in theirs.texts[name]]
        missing = [text for text in theirs.texts[name] if text not in texts]
        yield texts == theirs.texts[name], f"{name}: {len(texts)} texts; only here {extra}, only there {missing}"
    for name, is_so in ours.notes.items():
        yield is_so == theirs.notes[name], f"{name}: {is_so}, and there: {theirs.notes[name]}"
    new = sorted(set(ours.complaints) - set(theirs.complaints))
    yield not new, f"complaints: {len(set(ours.complaints))}, and there: {len(set(theirs.complaints))}; only here {new}"


def warnings_of(log: Path) -> list[str]:
    """What our server's log tells beyond INFO."""
    lines = log.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if not line.startswith("{") or json.loads(line)["level"].lower() != "info"]


def rerun_program() -> str | None:
    """The native viewer and Rerun's server, as rerun-sdk brings them."""
    found = importlib.util.find_spec("rerun_cli")
    return None if found is None or found.origin is None else str(Path(found.origin).with_name("rerun"))


def looked(server: str, viewer: str, folder: Path, port: int) -> Seen:
    """What a viewer shows of ``chunkmill`` or of ``rerun``; pictures and logs go to a folder of that name."""
    rerun, browser = rerun_program(), find_browser()
    assert rerun is not None
    files, place = folder / "files", folder / server
    place.mkdir(exist_ok=True)
    lake, page_port = tempfile.mkdtemp(prefix="lake-", dir=folder), port
    main = "from chunkmill.engine.cli import main; main()"
    words = [sys.executable, "-c", main, "serve", lake, "--create", "--web", "--port"]
    with contextlib.ExitStack() as stack:
        if server == "chunkmill":
            words += [str(port), "--allow", str(files), "--log-json"]
        else:
            # this server has no page: that of an empty lake, on a port of its own, shows it
            page_port = free_port()
            pages = stack.enter_context(subprocess.Popen([*words, str(page_port)], stderr=subprocess.DEVNULL))
            stack.callback(pages.kill)
            words = [rerun, "server", "--host", "127.0.0.1", "-p", str(port)]
        address, log = f"http://127.0.0.1:{page_port}", place / f"server-{viewer}.log"
        running = stack.enter_context(served(words, port, address, files, log))
        if viewer == "native":
            seen = look_natively(running, rerun, place)
        else:
            assert browser is not None
            seen = look_in_browser(running, browser, place)
    if server == "chunkmill":
        seen.complaints += warnings_of(log)
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(description="Look at a served lake and at Rerun's own server with both viewers.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--viewer", choices=("native", "browser"), action="append")
    chosen = parser.parse_args()
    folder = chosen.folder.resolve()
    write_files(folder / "files")
    failed = 0
    for viewer in chosen.viewer or ("native", "browser"):
        port = free_port()
        theirs, ours = (looked(server, viewer, folder, port) for server in ("rerun", "chunkmill"))
        for holds, text in compared(ours, theirs):
            failed += not holds
            print(f"{viewer:8}{'' if holds else 'FAILED: '}{text}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
