"""A filter by entity keeps an MCAP's other topics from being decoded at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from chunkmill.engine.errors import WriteError
from chunkmill.readers import McapReader
from chunkmill.readers.mcap import reader as reading_module


def test_unwanted_topics_are_not_decoded(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[str] = []
    real = reading_module.compile_decoder

    def spy(channel, *arguments, **options):
        decoded.append(channel.topic)
        return real(channel, *arguments, **options)

    monkeypatch.setattr(reading_module, "compile_decoder", spy)
    stream = (
        McapReader(data / "demo.mcap").stream().filter(content="/nissan/gps/**").drop(content="/nissan/gps/duro/imu")
    )
    entities = {c.entity_path for c in stream.to_chunks(executor="inline")}
    assert entities == {f"/nissan/gps/duro/{n}" for n in ("current_pose", "mag", "status_string")}
    assert sorted(decoded) == sorted(entities)


def test_an_mcap_is_not_written_onto_itself(data: Path, tmp_path: Path) -> None:
    source = tmp_path / "drive.mcap"
    source.write_bytes((data / "demo.mcap").read_bytes())
    with pytest.raises(WriteError, match="is a source of the same pipeline"):
        McapReader(source).stream().write_rrd(source, application_id="a", recording_id="r", executor="inline")
