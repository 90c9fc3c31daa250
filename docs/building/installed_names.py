"""A mkdocs hook: the API pages are made from this checkout, under the names by which it is installed."""

from __future__ import annotations

import tempfile
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority

_REPOSITORY = Path(__file__).resolve().parent.parent.parent
_tree = tempfile.TemporaryDirectory(prefix="chunkmill-docs-")


@event_priority(100)  # before mkdocstrings looks at its settings
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lay the source out as ``chunkmill/engine`` and so on, and let mkdocstrings read it there."""
    package = Path(_tree.name) / "chunkmill"
    if not package.exists():
        package.mkdir()
        for folder in ("engine", "lenses", "readers"):
            (package / folder).symlink_to(_REPOSITORY / folder)
        for path in (_REPOSITORY / "engine" / "package").glob("*.py"):
            (package / path.name).symlink_to(path)
    config.plugins["mkdocstrings"].config["handlers"]["python"]["paths"] = [_tree.name]
    return config


def on_shutdown() -> None:
    """Remove the layout."""
    _tree.cleanup()
