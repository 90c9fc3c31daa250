"""The site as a browser shows it: on a telephone and on a desk, light and dark, opened from its folder.

Skipped where mkdocs (the extra ``docs``) or Chromium is not installed. Both are there in ``.ci/run``.
"""

from __future__ import annotations

import doctest
import html
import importlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import is_dataclass
from enum import Enum
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import chunkmill
import pytest
from chunkmill.engine.cli.commands import commands
from places import REPOSITORY
from test_reference import resolved, shown

sys.path.insert(0, str(REPOSITORY / "docs" / "building"))

from browser import Browser, Page, find_browser

SIZES = {"telephone": (390, 844), "desk": (1280, 900)}

MEASURED = """(() => {
  const shown = e => e.offsetParent !== null && getComputedStyle(e).visibility !== "hidden";
  // What lies in a box that scrolls by itself can be reached; what sticks out of anything else cannot.
  const scrolls = e => { for (; e && e !== document.body; e = e.parentElement)
    if (["auto", "scroll"].includes(getComputedStyle(e).overflowX)) return true; return false; };
  const name = e => e.tagName + " " + (e.textContent || e.src || "").trim().slice(0, 60);
  const text = [...document.querySelectorAll(".md-content *")].filter(e => shown(e) && !scrolls(e));
  const out = e => { const r = e.getBoundingClientRect(); return r.right > innerWidth + 1 || r.left < -1; };
  const cut = e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX === "hidden" && e.clientWidth > 0;
  const pictures = [...document.querySelectorAll(".md-content img")];
  pictures.forEach(e => { e.loading = "eager" });
  return Promise.all(pictures.map(e => e.decode().then(() => null, () => e.src))).then(missing => ({
    wide: document.documentElement.scrollWidth > innerWidth,
    cut: text.filter(e => out(e) || cut(e)).slice(0, 5).map(name),
    missing: missing.filter(e => e),
    pictures: pictures.length,
    bright: getComputedStyle(document.body).backgroundColor.match(/\\d+/g).reduce((a, b) => a + +b, 0) > 382,
  }));
})()"""

PAUSE = "await new Promise(done => setTimeout(done, 50));"
SCHEME = "document.body.dataset.mdColorScheme"
PRESSED = "document.querySelector('.md-search__input').dispatchEvent(new KeyboardEvent('keyup', {bubbles: true}))"
FOUND = """[...document.querySelectorAll('.md-search-result__link')].map(e => e.getAttribute('href'))"""


def settled(tab: Page, condition: str) -> None:
    """Wait until a condition holds on the page."""
    waiting = (
        f"(async () => {{ for (let i = 0; i < 200; i++) {{ if ({condition}) return true; {PAUSE} }} return false }})()"
    )
    assert tab.value_of(waiting), condition


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. A warning of mkdocs (a link that leads nowhere, a page outside of the navigation) is an error."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install '.[docs]'")
    pytest.importorskip("material", reason="mkdocs-material is not installed: pip install '.[docs]'")
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {
        **os.environ,
        "CHUNKMILL_REPOSITORY_URL": "https://host.example/owner/chunkmill",
        "NO_MKDOCS_2_WARNING": "1",
    }
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def tab() -> Iterator[Page]:
    program = find_browser()
    if program is None:
        pytest.skip("no browser: chromium is not installed")
    with Browser(program) as browser:
        yield browser.open()


def pages(site: Path) -> list[Path]:
    return [path for path in sorted(site.rglob("*.html")) if path.name != "404.html"]


def test_a_browser_shows_every_page_whole(site: Path, tab: Page) -> None:
    faults: dict[str, Any] = {}
    found = pages(site)
    assert len(found) > 30
    for path in found:
        tab.go(path.as_uri())
        for name, dark in zip(SIZES, (False, True), strict=True):  # a scheme has no widths, a width no colours
            tab.look(*SIZES[name], dark=dark)
            settled(tab, f"{SCHEME} === '{'slate' if dark else 'default'}'")
            shown = tab.value_of(MEASURED)
            if shown["wide"] or shown["cut"] or shown["missing"] or shown["bright"] == dark:
                faults[f"{path.relative_to(site)}, {name}, {'dark' if dark else 'light'}"] = shown
        fetched = [url for url in tab.requests if not url.startswith(("file:", "data:", "blob:"))]
        if tab.errors or fetched:
            faults[str(path.relative_to(site))] = (list(tab.errors), fetched)
    assert not faults


def test_pages_have_their_pictures(site: Path, tab: Page) -> None:
    for page in ("index", "pipelines", "reports", "viewer", "recording_store"):
        tab.go((site / f"{page}.html").as_uri())
        assert tab.value_of(MEASURED)["pictures"], page


def test_the_search_needs_no_server(site: Path, tab: Page) -> None:
    tab.look(*SIZES["desk"])
    tab.go((site / "index.html").as_uri())
    tab.value_of("document.querySelector('#__search').click()")
    settled(tab, "document.querySelector('.md-search-result__meta').textContent.includes('Type to start')")
    tab.value_of("document.querySelector('.md-search__input').focus()")
    tab.call("Input.insertText", text="quarantine")
    settled(tab, f"{PRESSED}, {FOUND}.length > 0")
    links = tab.value_of(FOUND)
    assert any("ingest_operations.html" in link for link in links), links
    assert not tab.errors


def test_the_search_finds_commands_and_error_codes(site: Path) -> None:
    found = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    titles = {each["location"]: each["title"] for each in found}
    assert titles["errors.html#cm101"] == "CM101: ReadError"
    named = set(titles.values())
    commands_without_one = [name for name in commands.commands if f"chunkmill {name}" not in named]
    assert commands_without_one == []


def test_no_link_of_the_site_is_dead(site: Path) -> None:
    """Of those that mkdocs does not check: in HTML, in the reference and in what the theme adds."""
    places: dict[Path, set[str]] = {}
    links: list[tuple[Path, str]] = []
    for path in pages(site):
        text = path.read_text(encoding="utf-8")
        places[path] = {html.unescape(name) for name in re.findall(r'\b(?:id|name)="([^"]+)"', text)}
        links += [(path, html.unescape(link)) for link in re.findall(r'\b(?:href|src)="([^"]+)"', text)]
    dead = []
    for path, link in links:
        url = urlsplit(link)
        if url.scheme or url.netloc:
            continue
        target = (path.parent / unquote(url.path)).resolve() if url.path else path
        is_there = target.exists() and (not url.fragment or unquote(url.fragment) in places.get(target, {url.fragment}))
        if not is_there:
            dead.append(f"{path.relative_to(site)}: {link}")
    assert len(links) > 1_000
    assert dead == []


def test_the_reference_has_the_parameters_of_constructors(site: Path) -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (site / "api").glob("*.html"))
    missing = {}
    for name in shown(constructed=True):
        if given := parameters_of(resolved(name)):
            heading = re.search(rf'id="{re.escape(name)}".*?<div class="doc doc-contents', text, re.DOTALL)
            assert heading is not None
            signature = html.unescape(re.sub("<[^>]+>", "", heading[0])) if "doc-signature" in heading[0] else ""
            missing[name] = [one for one in given if not re.search(rf"\b{one}\b", signature)]
    assert len(missing) > 50
    assert not any(missing.values()), missing


def parameters_of(thing: object) -> tuple[str, ...]:
    """The fields of a data class or named tuple, or the parameters of a constructor of its own."""
    if not isinstance(thing, type) or issubclass(thing, Enum):
        return ()
    if not (is_dataclass(thing) or hasattr(thing, "_fields") or "__init__" in vars(thing)):
        return ()
    return tuple(name for name in inspect.signature(thing).parameters if name not in ("args", "kwargs"))


def test_the_site_links_to_its_repository(site: Path, tab: Page) -> None:
    tab.look(*SIZES["desk"])
    tab.go((site / "index.html").as_uri())
    assert (
        tab.value_of("document.querySelector('.md-header .md-source').href") == "https://host.example/owner/chunkmill"
    )


def test_every_page_shows_the_version_of_chunkmill(site: Path) -> None:
    shown = re.compile(rf'md-copyright__highlight">\s*chunkmill {re.escape(chunkmill.__version__)}\s*<')
    assert [path for path in pages(site) if not shown.search(path.read_text(encoding="utf-8"))] == []


def test_a_site_in_a_folder_requests_no_other_versions(site: Path, tab: Page) -> None:
    tab.go((site / "index.html").as_uri())
    settled(tab, "document.querySelector('.md-copyright__highlight').innerText.startsWith('chunkmill ')")
    assert [url for url in tab.requests if "versions.json" in url] == []


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """Two versions of a site of two pages, published by mike as CONTRIBUTING.md says: a folder, and its URL."""
    for module in ("mkdocs", "material", "mike"):
        pytest.importorskip(module, reason=f"{module} is not installed: pip install '.[docs]'")
    folder = tmp_path_factory.mktemp("published")
    repository, branch = folder / "repository", folder / "branch"
    for name in ("CHANGELOG.md", "mkdocs.yml", "engine/package", "docs/assets", "docs/building"):
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (REPOSITORY / name).is_dir() else shutil.copy)(REPOSITORY / name, repository / name)
    for name in ("index.md", "changelog.md", "llms.txt"):
        shutil.copy(REPOSITORY / "docs" / name, repository / "docs")
    (repository / "two_pages.yml").write_text("INHERIT: mkdocs.yml\nnav: [index.md, changelog.md]\n")
    (folder / "mkdocs").write_text(f'#!/bin/sh\nexec {sys.executable} -m mkdocs "$@"\n')
    (folder / "mkdocs").chmod(0o755)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_QuietHandler, directory=branch))
    url = f"http://127.0.0.1:{server.server_port}"
    environment = {
        **os.environ,
        **{f"GIT_{role}_{fact}": "somebody@host" for role in ("AUTHOR", "COMMITTER") for fact in ("NAME", "EMAIL")},
        "CHUNKMILL_SITE_URL": url,
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
    }

    def run(*command: str) -> None:
        done = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    mike = (sys.executable, "-c", "from mike.driver import main; main()")
    run("git", "init", "--quiet")
    run("git", "add", ".")
    run("git", "commit", "--quiet", "--message", "Two pages")
    for version in ("0.1", "0.2"):
        run(*mike, "deploy", "--config-file", "two_pages.yml", "--update-aliases", version, "latest")
    run(*mike, "set-default", "--config-file", "two_pages.yml", "latest")
    run("git", "clone", "--quiet", "--branch", "gh-pages", ".", str(branch))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield branch, url
    server.shutdown()
    server.server_close()


def test_a_published_site_has_its_versions(published: tuple[Path, str]) -> None:
    branch, _ = published
    versions = json.loads((branch / "versions.json").read_text())
    assert [(one["version"], one["aliases"]) for one in versions] == [("0.2", ["latest"]), ("0.1", [])]
    for page in ("0.1/index.html", "0.2/changelog.html", "latest/index.html"):
        text = (branch / page).read_text(encoding="utf-8")
        assert '"version": {"provider": "mike"}' in text
        assert f"chunkmill {chunkmill.__version__}" in text


def test_who_chooses_another_version_stays_on_the_page(published: tuple[Path, str], tab: Page) -> None:
    _, url = published
    tab.look(*SIZES["desk"])
    tab.go(f"{url}/latest/changelog.html")
    settled(tab, "document.querySelectorAll('.md-version__link').length === 2")
    assert not tab.errors
    tab.value_of("[...document.querySelectorAll('.md-version__link')].find(e => e.text.trim() === '0.1').click()")
    arrives(tab, "/0.1/changelog.html")
    tab.go(url)
    arrives(tab, "/latest/")


def arrives(tab: Page, place: str) -> None:
    """Wait until the tab is at a place, while it goes from page to page."""
    until = time.monotonic() + 30
    while (now := tab.value_of("location.pathname")) != place and time.monotonic() < until:
        time.sleep(0.05)
    assert now == place


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def test_a_reader_may_choose_dark_colours(site: Path, tab: Page) -> None:
    tab.look(*SIZES["desk"])
    tab.go((site / "index.html").as_uri())
    tab.value_of("document.querySelector('input[data-md-color-scheme=slate]').click()")
    settled(tab, f"{SCHEME} === 'slate'")


def test_the_repository_is_where_the_checkout_came_from() -> None:
    pytest.importorskip("mkdocs")
    assert doctest.testmod(importlib.import_module("checkout")).failed == 0


def test_a_fault_is_noticed(tmp_path: Path, tab: Page) -> None:
    broken = tmp_path / "broken.html"
    broken.write_text(
        "<meta name=viewport content='width=device-width'><body style='background-color: rgb(255, 255, 255)'>"
        "<div class=md-content><p style='width: 900px'>wide</p><img src=gone.png></div>"
        "<script>console.error('broken')</script>"
    )
    tab.look(*SIZES["telephone"])
    tab.go(broken.as_uri())
    shown = tab.value_of(MEASURED)
    assert shown["wide"]
    assert shown["cut"]
    assert shown["missing"]
    assert any("broken" in error for error in tab.errors)


def test_pictures_can_be_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = importlib.import_module("pictures")
    monkeypatch.setattr(pictures, "ASSETS", tmp_path)
    for name in ("plan", "store"):
        (tmp_path / name).mkdir()
        pictures.PICTURES[name](tmp_path / name)
        drawn = (tmp_path / f"{name}.svg").read_text(encoding="utf-8")
        assert ElementTree.fromstring(drawn).tag.endswith("svg")
        assert str(tmp_path) not in drawn
    assert "def pipeline(stream)" in pictures.pipeline_of_the_page()
