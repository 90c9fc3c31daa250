"""A staging folder that cannot be begun is not left behind."""

from __future__ import annotations

import errno

import pytest
from chunkmill.engine.errors import NoSpaceError
from chunkmill.engine.execution.commit import Staging
from chunkmill.engine.storage.folder import LocalFolder


def test_a_disk_with_room_for_the_folder_alone(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(LocalFolder, "put", full)
    monkeypatch.setenv("CHUNKMILL_SCRATCH", str(tmp_path))
    for make in (lambda: Staging.beside(tmp_path / "out.rrd"), Staging.in_scratch):
        with pytest.raises(NoSpaceError):
            make()
        assert list(tmp_path.iterdir()) == []
