"""``Recording.view``: the rows of a downloaded segment, with filters added one by one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from chunkmill import CatalogClient, Chunk, LazyChunkStream
from chunkmill.engine.catalog import Recording
from chunkmill.engine.chunk import ComponentDescriptor


def chunk(entity: str, frames: list[int], values: list[Any], component: str = "value") -> Chunk:
    index = {"frame": pa.array(frames, pa.int64())} if frames else {}
    return Chunk.build(entity, index, [(ComponentDescriptor(component), pa.array(values))])


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    folder = tmp_path_factory.mktemp("view")
    parts = [
        chunk("/speed", [1, 2, 4], [[10], [20], [40]]),
        chunk("/speed", [2], [[True]], "valid"),
        chunk("/gear", [2, 3], [[1], []]),
        chunk("/driver", [], [["Ada"]]),
    ]
    path = folder / "one.rrd"
    LazyChunkStream.from_iter(parts).write_rrd(path, application_id="t", recording_id="one", executor="inline")
    drives = CatalogClient(folder / "lake").create_dataset("drives")
    drives.register([str(path)]).wait()
    with pytest.warns(DeprecationWarning, match="This method is deprecated"):
        return drives.filter_segments("one").download_segment("one")


def frames(reader: pa.RecordBatchReader) -> list[int]:
    found: list[int] = reader.read_all()["frame"].to_pylist()
    return found


def test_filters_choose_rows_before_they_are_filled(recording: Recording) -> None:
    view = recording.view(index="frame", contents="/speed /gear")
    assert view.select().schema.names == ["frame", "/gear:value", "/speed:valid", "/speed:value"]
    assert frames(view.filter_range_sequence(2, 3).select()) == [2, 3]
    assert frames(view.filter_range_sequence(3, 2).to_arrow_reader()) == []
    assert frames(view.filter_index_values([0, 1, 4]).select()) == [1, 4]
    filled = view.filter_is_not_null("/speed:value").fill_latest_at().select("frame", "/gear:value").read_all()
    assert filled.to_pylist() == [
        {"frame": 1, "/gear:value": None},
        {"frame": 2, "/gear:value": [1]},
        {"frame": 4, "/gear:value": []},
    ]
    assert view.using_index_values([9]).fill_latest_at().df().to_pylist() == [
        {"frame": 9, "/gear:value": [], "/speed:valid": [True], "/speed:value": [40]}
    ]


def test_contents_may_name_components(recording: Recording) -> None:
    view = recording.view(index="frame", contents={"/speed": "valid", "/gear": ["value"]})
    assert view.df().schema().names == ["frame", "/gear:value", "/speed:valid"]
    assert frames(view.select()) == [2, 3]
    assert recording.view(index=None, contents="/**").df().to_pylist() == [{"frame": None, "/driver:value": ["Ada"]}]


def test_bad_calls(recording: Recording) -> None:
    assert frames(recording.view(index="frame", contents="/none").select()) == []
    assert recording.view(index="nope", contents="/speed").df().count() == 0
    with pytest.raises(TypeError, match="contents"):
        recording.view(index="frame", contents=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="there is no column 'speed'"):
        recording.view(index="frame", contents="/**").select("speed")
    with pytest.raises(ValueError, match="Specify an index"):
        recording.view(index=None, contents="/**").filter_range_nanos(0, 1)
