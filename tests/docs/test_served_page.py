"""The page of a served lake as a browser draws it, without a graphics card."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.catalog.server import CatalogService, Web, start, viewer_pages
from chunkmill.engine.cli.commands import commands
from click.testing import CliRunner
from places import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "docs" / "building"))

from browser import WEBGL, Browser, Page, find_browser

SECONDS = 40.0


def picture_of(tab: Page) -> bytes:
    tab.value_of("new Promise(done => setTimeout(done, 1000))")
    return tab.picture()


@pytest.mark.slow
def test_a_browser_shows_the_segments_of_a_dataset(tmp_path: Path) -> None:
    for package in ("rerun", "grpc", "uvicorn"):
        pytest.importorskip(package)
    program = find_browser()
    if program is None:
        pytest.skip("no browser: chromium is not installed")
    file = tmp_path / "demo.rrd"
    done = CliRunner().invoke(commands, ["convert", str(REPOSITORY / "tests" / "data" / "demo.mcap"), "-o", str(file)])
    assert done.exit_code == 0, done.output
    lake = CatalogClient(tmp_path / "lake")
    dataset = lake.create_dataset("drives")
    dataset.register([file], executor="inline").wait()
    with start(CatalogService(lake), web=Web(pages=viewer_pages())) as server, Browser(program, WEBGL) as browser:
        host = f"127.0.0.1:{server.port}"
        metrics = browser.open()
        tab = browser.open()
        tab.look(1280, 800)
        blank = picture_of(tab)
        tab.go(f"http://{host}/?url=rerun%2Bhttp%3A%2F%2F{host}%2Fentry%2F{dataset.id}")
        ends = time.monotonic() + SECONDS
        before, shown = b"", picture_of(tab)
        asked = ""
        # the page is one canvas: that the table was fetched is seen at the server, that it is drawn in the picture
        while time.monotonic() < ends and ('method="ScanSegmentTable",status="OK"' not in asked or shown != before):
            before, shown = shown, picture_of(tab)
            metrics.go(f"http://{host}/metrics")
            asked = metrics.value_of("document.body.innerText")
        assert 'method="ScanSegmentTable",status="OK"' in asked
        assert len(shown) > 3 * len(blank)
        # what the viewer wants of other hosts may be out of reach; a fetch that fails is told with its address, too
        assert not [error for error in tab.errors if host in error and "Failed to fetch" not in error]
