"""A mkdocs hook: what the site takes from this checkout.

The API pages are made from its source, under the names by which it is installed. The link to the repository is where it
was cloned from, or ``CHUNKMILL_REPOSITORY_URL``. ``CHUNKMILL_SITE_URL`` is where the site is published.
The footer has the version of chunkmill.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.pages import Page

_REPOSITORY = Path(__file__).resolve().parent.parent.parent
_tree = tempfile.TemporaryDirectory(prefix="chunkmill-docs-")


@event_priority(100)  # before mkdocstrings and the theme look at the settings
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lay the source out as ``chunkmill/engine`` and so on for mkdocstrings, and set links and versions."""
    package = Path(_tree.name) / "chunkmill"
    if not package.exists():
        package.mkdir()
        for folder in ("engine", "lenses", "readers"):
            (package / folder).symlink_to(_REPOSITORY / folder)
        for path in (_REPOSITORY / "engine" / "package").glob("*.py*"):
            (package / path.name).symlink_to(path)
    config.plugins["mkdocstrings"].config["handlers"]["python"]["paths"] = [_tree.name]
    if not config.repo_url and (url := repository_url()):
        config.repo_url = url
        config.repo_name = "/".join(url.rsplit("/", 2)[1:])
    if url := os.environ.get("CHUNKMILL_SITE_URL"):
        config.site_url = f"{url.rstrip('/')}/"
    config.copyright = f"chunkmill {version()}"
    if "MIKE_DOCS_VERSION" not in os.environ:  # pages without other versions would request a list of them in vain
        config.extra.pop("version", None)
    return config


def on_pre_page(page: Page, **_: Any) -> Page:
    """List the first page in the map of the site as its folder, which the selector of versions looks for."""
    if page.file.src_uri == "index.md" and page.canonical_url:
        page.canonical_url = page.canonical_url.removesuffix("index.html")
    return page


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Take the changelog from the repository's root, with its links to pages as seen from the folder of the pages."""
    if page.file.src_uri != "changelog.md":
        return markdown
    return (_REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8").replace("](docs/", "](")


def on_post_build(config: MkDocsConfig) -> None:
    """Let ``llms.txt`` link to the pages of the site."""
    listing = Path(config.site_dir) / "llms.txt"
    listing.write_text(listing.read_text(encoding="utf-8").replace(".md)", ".html)"), encoding="utf-8")


def on_shutdown() -> None:
    """Remove the layout."""
    _tree.cleanup()


def version() -> str:
    """The version of chunkmill that the pages describe."""
    text = (_REPOSITORY / "engine" / "package" / "__init__.py").read_text(encoding="utf-8")
    return re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)[0]


def repository_url() -> str | None:
    """The web page of the repository; none where the checkout was not cloned from a server."""
    if url := os.environ.get("CHUNKMILL_REPOSITORY_URL"):
        return url
    command = ["git", "-C", str(_REPOSITORY), "remote", "get-url", "origin"]
    try:
        origin = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return None
    return web_page(origin)


def web_page(remote: str) -> str | None:
    """``https://host/owner/name`` of a remote of git's, without credentials; none of a local path.

    >>> web_page("git@host.org:owner/name.git"), web_page("https://user:secret@host.org/owner/name")
    ('https://host.org/owner/name', 'https://host.org/owner/name')
    >>> web_page("/srv/repositories/name")
    """
    found = re.fullmatch(r"(?:(?:https?|ssh|git)://)?(?:[^@/]+@)?([\w.-]+\.\w+)(?::\d+/|[:/])(.+?)(?:\.git)?/?", remote)
    return f"https://{found[1]}/{found[2]}" if found else None
