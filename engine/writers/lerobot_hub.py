"""Upload of a LeRobot dataset to the Hugging Face Hub, with the Hub's library."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ..errors import MissingExtraError, ReadError, UsageError, WriteError, extra_command
from ..locations import local_path, without_folders
from .lerobot_files import ACCOUNT

_KIND: Final = "dataset"
_FOLDERS: Final = ("data", "meta", "videos")
_CARD: Final = """---
task_categories:
- robotics
tags:
- LeRobot
configs:
- config_name: default
  data_files: data/*/*.parquet
---

A LeRobot dataset of version {version}: {episodes:,} episodes, {frames:,} frames at {fps} frames a second.
"""


def push_lerobot(folder: str | os.PathLike[str], hub_id: str, *, private: bool | None = None) -> str:
    """Upload a LeRobot dataset to the Hugging Face Hub, and return its address.

    One commit contains all changes, including the removal of files that the folder no longer has. Files outside
    ``data``, ``meta`` and ``videos`` are not changed. The upload contains no path of this machine. Then the tag of the
    dataset's version, which LeRobot looks for, is moved to that commit. Credentials are from the library's login or
    ``HF_TOKEN``. If a run is interrupted, repeat it.

    Parameters
    ----------
    folder
        The dataset.
    hub_id
        The name on the Hub, ``owner/name``; created if missing.
    private
        Whether a new dataset is private; by default the owner's setting applies.

    Raises
    ------
    MissingExtraError
        ``huggingface_hub`` is not installed.
    UsageError
        The name is invalid, or names of recordings are paths of this machine, which would be published.
    ReadError
        The folder is not a LeRobot dataset.
    WriteError
        The Hub refuses the upload, or cannot be reached.
    """
    check_hub(hub_id)
    import huggingface_hub
    from huggingface_hub.errors import RevisionNotFoundError

    root = local_path(folder)
    info = _info(root)
    _check_account(root)
    repository: dict[str, Any] = {"repo_id": hub_id, "repo_type": _KIND}
    with _on_hub(hub_id):
        hub = huggingface_hub.HfApi(library_name="chunkmill")
        address = str(hub.create_repo(**repository, private=private, exist_ok=True))
        if not hub.file_exists(filename="README.md", **repository):
            card = _CARD.format(
                version=info["codebase_version"],
                episodes=info["total_episodes"],
                frames=info["total_frames"],
                fps=info["fps"],
            )
            hub.upload_file(path_or_fileobj=card.encode(), path_in_repo="README.md", **repository)
        patterns = [f"{name}/*" for name in _FOLDERS]
        hub.upload_folder(
            folder_path=str(root),
            commit_message=f"{info['total_episodes']:,} episodes, {info['total_frames']:,} frames",
            allow_patterns=patterns,
            delete_patterns=patterns,
            **repository,
        )
        with contextlib.suppress(RevisionNotFoundError):
            hub.delete_tag(tag=info["codebase_version"], **repository)
        hub.create_tag(tag=info["codebase_version"], **repository)
    return address


def check_hub(hub_id: str) -> None:
    """Raise ``MissingExtraError`` if the library is not installed, ``UsageError`` for an invalid name."""
    try:
        from huggingface_hub.utils import validate_repo_id
    except ImportError as error:
        hint = extra_command("hub")
        raise MissingExtraError("the Hugging Face Hub needs huggingface_hub", hint=hint) from error
    try:
        validate_repo_id(hub_id)
        if hub_id.count("/") != 1:
            raise ValueError("it has no owner")
    except ValueError as error:
        raise UsageError(f"{hub_id!r} is not a valid name on the Hub: {error}", hint="Give owner/name.") from None


def _info(root: Path) -> dict[str, Any]:
    try:
        info: dict[str, Any] = json.loads((root / "meta/info.json").read_text(encoding="utf-8"))
        info["codebase_version"] = str(info["codebase_version"])
        for key in ("total_episodes", "total_frames", "fps"):
            info[key] = int(info[key])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReadError(f"is not a LeRobot dataset: {error!r}", path=str(root), hint="Write one first.") from error
    return info


def _check_account(root: Path) -> None:
    """Raise ``UsageError`` if an account names paths of this machine, ``ReadError`` if it is damaged."""
    place = root / ACCOUNT
    if not place.exists():
        return
    try:
        facts = json.loads(place.read_text(encoding="utf-8"))
        texts = [each["name"] for each in facts["recordings"]]
        texts += [each[key] for each in facts["episodes"] for key in ("recording", "task", "reason") if each[key]]
        named = next((text for text in texts if without_folders(text) != text), None)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReadError(f"is damaged: {error!r}", path=str(place), hint="Write the dataset again.") from error
    if named is not None:
        raise UsageError(
            f"names a path of this machine, which the Hub would publish: {named}",
            path=str(place),
            hint="Write the dataset again, with recording names that are not paths.",
        )


@contextmanager
def _on_hub(hub_id: str) -> Iterator[None]:
    """Raise the library's errors as ``WriteError``."""
    try:
        yield
    except Exception as error:
        hint = "The local dataset is complete; log in with `hf auth login`, or set HF_TOKEN, and push it again."
        raise WriteError(f"was not pushed: {error}", path=hub_id, hint=hint) from error
