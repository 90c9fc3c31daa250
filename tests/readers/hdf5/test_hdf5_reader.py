"""HDF5: what becomes of groups, datasets, attributes and links, and that no file gives anything of another one."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from chunkmill.engine.chunk import Chunk
from chunkmill.engine.errors import ChunkmillError, ReadError, ReadWarning, SourceMissingError, UsageError
from chunkmill.readers import Hdf5Reader, IndexColumn
from chunkmill.readers.hdf5 import file as hdf5_file
from chunkmill.readers.hdf5.file import Hdf5File

pytestmark = pytest.mark.process


def read(path: Path, **options: Any) -> dict[tuple[str, bool], list[Chunk]]:
    chunks: dict[tuple[str, bool], list[Chunk]] = {}
    for chunk in Hdf5Reader(path).stream(**options).to_chunks(executor="inline"):
        chunks.setdefault((chunk.entity_path, chunk.is_static), []).append(chunk)
    return chunks


def values(chunk: Chunk, name: str) -> list[Any]:
    return [row[0] for row in chunk.to_record_batch().column(name).to_pylist()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "episode.hdf5"


def test_groups_are_entities_and_datasets_columns(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["observations/qpos"] = np.arange(40.0).reshape(20, 2)
        file["observations/images/top"] = np.arange(120, dtype="u1").reshape(20, 3, 2)
        file["action"] = np.arange(20, dtype=">i4")
        file["names"] = [f"row {i} é" for i in range(20)]
        file["rate"] = 50
        file.attrs["sim"] = np.bool_(True)
    chunks = read(path)
    assert values(chunks["/", False][0], "data")[3] == {"action": 3, "names": "row 3 é"}
    assert values(chunks["/observations", False][0], "qpos")[1] == [2.0, 3.0]
    assert values(chunks["/observations/images", False][0], "top")[1] == [6, 7, 8, 9, 10, 11]
    assert values(chunks["/", True][0], "rate") == [50]
    assert values(chunks["/__hdf5_properties", True][0], "sim") == [1]
    assert Hdf5Reader(path).groups() == ["/observations", "/observations/images"]
    assert Hdf5Reader(path).datasets("/observations/images") == [("/observations/images/top", (20, 3, 2), "uint8")]
    with pytest.raises(KeyError):
        Hdf5Reader(path).attributes("/none")


@pytest.mark.parametrize(
    "storage",
    [
        {},
        {"chunks": (7, 3, 5)},
        {"chunks": (7, 6, 5), "compression": "gzip"},
        {"chunks": (4, 2, 5), "compression": "gzip", "shuffle": True},
        {"chunks": (7, 6, 5), "compression": "gzip", "shuffle": True, "fletcher32": True},
        {"chunks": (7, 6, 5), "compression": "lzf"},
        {"chunks": (7, 6, 5), "scaleoffset": 0},
    ],
)
@pytest.mark.parametrize("user_block", [0, 512])
def test_every_storage_gives_the_values_of_h5py(path: Path, storage: dict[str, Any], user_block: int) -> None:
    data = np.random.default_rng(1).integers(0, 1000, (30, 6, 5))
    with h5py.File(path, "w", userblock_size=user_block) as file:
        file.create_dataset("x", (40, 6, 5), "i8", fillvalue=0, **storage)[:30] = data
        expected = file["x"][:].reshape(40, -1).tolist()
    (chunk,) = read(path)["/", False]
    assert values(chunk, "x") == expected


def test_types_that_rerun_leaves_out(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["bool"] = np.array([True, False])
        file["half"] = np.array([1.5, 2], "f2")
        file["pair"] = np.array([(1, 2.5), (3, 4.5)], [("a", "i4"), ("b", ">f8")])
        file["complex"] = np.array([1 + 2j, 3])
        lists = file.create_dataset("lists", (2,), h5py.vlen_dtype("i4"))
        lists[0], lists[1] = [1, 2, 3], []
    (chunk,) = read(path)["/", False]
    assert values(chunk, "data")[0] == {
        "bool": True,
        "complex": {"r": 1.0, "i": 2.0},
        "half": 1.5,
        "lists": [1, 2, 3],
        "pair": {"a": 1, "b": 2.5},
    }


def test_references_are_named_in_a_warning(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(2)
        file.create_dataset("r", (2,), h5py.ref_dtype)
    with pytest.warns(ReadWarning, match="/r has references"):
        assert values(read(path)["/", False][0], "x") == [0, 1]


def test_links_are_followed_and_circles_end(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["g/x"] = np.arange(3)
        file["g/soft"] = h5py.SoftLink("/g/x")
        file["h/hard"] = file["g/x"]
        file["g/up"] = file["/"]
        file["gone"] = h5py.SoftLink("/none")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        chunks = read(path)
    texts = " ".join(str(warning.message) for warning in caught)
    assert "/g/up is a link to a surrounding group" in texts and "/gone is a link to '/none'" in texts
    assert values(chunks["/g", False][0], "data")[2] == {"soft": 2, "x": 2}
    assert values(chunks["/h", False][0], "hard") == [0, 1, 2]


def test_an_index_sorts_rows_and_must_be_a_number(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["t"] = [0.5, 0.25, 1]
        file["x"] = np.arange(3)
    (chunk,) = read(path, index_column=IndexColumn.timestamp("/t", input_unit="s"))["/", False]
    assert values(chunk, "x") == [1, 0, 2]
    with h5py.File(path, "a") as file:
        file["t"][1] = np.nan
    with pytest.raises(ReadError, match="NaN in row 1"):
        read(path, index_column=("t", "timestamp", "s"))
    with pytest.raises(UsageError, match="not found in the file"):
        read(path, index_column=("none", "sequence"))


def test_rows_that_differ_are_an_error_and_demos_are_recordings(path: Path) -> None:
    with h5py.File(path, "w") as file:
        for number in (0, 1, 10, 2):
            file[f"data/demo_{number}/actions"] = np.arange(number + 1)
    with pytest.raises(UsageError, match="not row-aligned"):
        read(path)
    demos = Hdf5Reader(path).recordings()
    assert [demo.recording_id for demo in demos] == ["demo_0", "demo_1", "demo_2", "demo_10"]
    (chunk,) = demos[3].stream().to_chunks(executor="inline")
    assert (chunk.entity_path, chunk.num_rows) == ("/", 11)


def test_a_missing_source_of_a_view_is_an_error(path: Path) -> None:
    layout = h5py.VirtualLayout((4,), "i8")
    layout[:] = h5py.VirtualSource(".", "none", (4,))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("out", layout)
    with pytest.raises(ReadError, match="which is missing"):
        read(path)


def test_declared_sizes_are_bounded(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (10**9, 100), "f8", chunks=(1, 100))
    with pytest.raises(ReadError, match="declare 800,000,000,000 bytes"):
        read(path)
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (2, 1 << 28), "u1", chunks=(1, 1 << 28))
    with pytest.raises(ReadError, match="a storage chunk has 268,435,456 bytes"):
        read(path)


def test_what_is_no_hdf5_file(path: Path) -> None:
    with pytest.raises(SourceMissingError, match="HDF5 file not found"):
        Hdf5Reader(path)
    path.write_bytes(b"text")
    with pytest.raises(ReadError, match="signature not found"):
        read(path)
    path.write_bytes(b"")
    with pytest.raises(ReadError, match="empty"):
        read(path)


def test_damage_is_an_error_or_a_reading(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("g/x", data=np.arange(90).reshape(30, 3), chunks=(7, 3), compression="gzip", shuffle=True)
        file["g/s"] = [f"row {i}" for i in range(30)]
        file.create_dataset("l", data=np.arange(30), chunks=(8,), compression="lzf")
        file.attrs["text"] = "words"
    whole, chance = path.read_bytes(), random.Random(5)
    refused: list[str] = []
    for _ in range(25):
        damaged = bytearray(whole)
        for _ in range(chance.choice((1, 4, 30))):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        path.write_bytes(damaged[: chance.randrange(len(damaged))] if chance.random() < 0.2 else damaged)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReadWarning)
            try:
                read(path)
            except ChunkmillError as error:
                refused.append(str(error))
    assert refused and all(str(path) in text for text in refused)


def pixels(*shape: int, dtype: str = "u1") -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(0, 200, shape).astype(dtype)


@pytest.mark.parametrize(
    ("shape", "dtype", "archetype", "facts"),
    [
        ((5, 4, 6, 3), "u1", "Image", (None, 2, 6)),
        ((5, 4, 6, 4), "u1", "Image", (None, 3, 6)),
        ((5, 4, 6), "u1", "Image", (None, 1, 6)),
        ((5, 4, 6, 3), ">u2", "Image", (None, 2, 8)),
        ((5, 4, 6), "<u2", "DepthImage", (None, None, 8)),
        ((5, 4, 6, 1), ">f4", "DepthImage", (None, None, 34)),
    ],
)
def test_pixels_keep_their_shape(
    path: Path, shape: tuple[int, ...], dtype: str, archetype: str, facts: tuple[int | None, ...]
) -> None:
    wanted = pixels(*shape, dtype=dtype)
    with h5py.File(path, "w") as file:
        file["obs/cam"] = wanted
        file["obs/q"] = np.arange(5.0)
    chunks = read(path, images=["obs/cam"])
    assert set(chunks) == {("/obs/cam", False), ("/obs", False)}
    (chunk,) = chunks["/obs/cam", False]
    (layout, *_) = values(chunk, f"{archetype}:format")
    assert (layout["width"], layout["height"]) == (6, 4)
    assert (layout["pixel_format"], layout["color_model"], layout["channel_datatype"]) == facts
    native = wanted.astype(wanted.dtype.newbyteorder("="))
    assert [bytes(row) for row in values(chunk, f"{archetype}:buffer")] == [row.tobytes() for row in native]


def jpegs(count: int) -> tuple[list[bytes], np.ndarray[Any, Any]]:
    """JPEGs, and rows of them padded to the longest, as ALOHA has them."""
    import io

    from PIL import Image

    files = []
    for i in range(count):
        out = io.BytesIO()
        Image.fromarray(pixels(8 + i, 8, 3)).save(out, "JPEG")
        files.append(out.getvalue())
    longest = max(map(len, files))
    return files, np.stack([np.frombuffer(file.ljust(longest, b"\0"), np.uint8) for file in files])


def test_padded_rows_of_aloha_are_encoded_images(path: Path) -> None:
    files, rows = jpegs(6)
    with h5py.File(path, "w") as file:
        file["observations/images/cam_high"] = rows
        file["observations/qpos"] = np.zeros((6, 14))
        file["compress_len"] = np.array([[float(len(f)) for f in files]])
    with pytest.raises(UsageError, match="not row-aligned"):
        read(path)
    chunks = read(path, preset="aloha")
    (chunk,) = chunks["/observations/images/cam_high", False]
    assert [bytes(row) for row in values(chunk, "EncodedImage:blob")] == files
    assert values(chunk, "EncodedImage:media_type") == ["image/jpeg"] * 6
    assert ("/observations", False) in chunks


def test_a_row_that_is_no_picture_is_an_error(path: Path) -> None:
    _, rows = jpegs(3)
    rows[2, 0] = 0
    with h5py.File(path, "w") as file:
        file["cam"] = rows
    with pytest.raises(ReadError, match="row 2 is not JPEG"):
        read(path, images=["cam"])


def test_presets_are_options(path: Path) -> None:
    with h5py.File(path, "w") as file:
        for i in range(3):
            file[f"data/demo_{i}/obs/agentview_image"] = pixels(4 + i, 2, 2, 3)
            file[f"data/demo_{i}/actions"] = np.zeros((4 + i, 7))
    demos = Hdf5Reader(path).recordings()
    assert [demo.recording_id for demo in demos] == ["demo_0", "demo_1", "demo_2"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReadWarning)  # of patterns that fit nothing
        chunks = list(demos[2].stream(preset="robomimic").to_chunks(executor="inline"))
    assert {(c.entity_path, c.num_rows) for c in chunks} == {("/obs/agentview_image", 6), ("/", 6)}
    with pytest.raises(UsageError, match="there is no preset 'all'"):
        Hdf5Reader(path).stream(preset="all")
    with pytest.raises(UsageError, match="are not images"):
        Hdf5Reader(path).stream(root_group="/data/demo_0", images=["actions"])


def test_times_of_droid(path: Path) -> None:
    start = 1_690_000_000_000
    with h5py.File(path, "w") as file:
        file["observation/timestamp/control/step_start"] = start + np.arange(4) * 66
        file["action/joint_position"] = np.zeros((4, 7))
    (chunk,) = read(path, preset="droid")["/action", False]
    assert chunk.data.timelines[0].ticks.tolist() == [(start + 66 * i) * 1_000_000 for i in range(4)]


@pytest.mark.parametrize("stop", [0, 57, 100])
def test_blocks_that_are_read_ahead_have_the_rows_of_every_call(
    path: Path, stop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = np.random.default_rng(2).integers(0, 1000, (100, 3), "i4")
    with h5py.File(path, "w") as file:
        for name, chunks in (("x", (7, 3)), ("y", (1, 2))):
            file.create_dataset(name, data=data, chunks=chunks, compression="lzf")
    monkeypatch.setattr(hdf5_file, "_BLOCK", 10 * 12)
    with Hdf5File(str(path), None, stop) as opened:
        datasets = opened.tree().datasets
        for start in [*range(0, 57, 4), 90, 3]:
            for dataset in datasets:
                assert not dataset.is_plain
                end = min(start + 4, stop or 100) if start < stop else start + 4
                assert opened.array(dataset, start, end).to_pylist() == data[start:end].tolist()
            if not start:
                assert bool(opened._ahead) == (stop > 0)


def test_rows_larger_than_the_shared_memory_are_read(path: Path) -> None:
    size = 40 << 20
    row = np.zeros((1, size), "u1")
    row[0, ::4096] = 7
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=row, chunks=(1, size), compression="lzf")
    with Hdf5File(str(path)) as opened:
        (dataset,) = opened.tree().datasets
        assert np.array_equal(opened.array(dataset, 0, 1).flatten().to_numpy(), row[0])


@pytest.mark.parametrize("width", [1, 2, 3, 8, 17, 100])
def test_elements_of_every_size_are_unshuffled(path: Path, width: int) -> None:
    data = np.random.default_rng(width).integers(0, 256, (50_000, width), "u1")
    with h5py.File(path, "w") as file:
        elements = data.view(f"V{width}").reshape(-1)
        file.create_dataset("x", data=elements, chunks=(20_000,), compression="gzip", compression_opts=1, shuffle=True)
    chunks = read(path)["/", False]
    assert b"".join(value for chunk in chunks for value in values(chunk, "x")) == data.tobytes()
