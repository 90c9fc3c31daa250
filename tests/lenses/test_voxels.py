"""Grids of voxels, of Foxglove and of ROS, as the voxels that are there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, ComponentDescriptor, TimeColumn
from chunkmill.lenses import LensSet
from chunkmill.lenses.foxglove import foxglove_lenses
from chunkmill.readers import McapReader
from foxglove_messages import DIALECTS, POSE, VECTOR, Dialect
from ros_messages import columns, mapped, message, times, vector

# --- Foxglove


def fox_type(dialect: Dialect) -> pa.StructType:
    field = pa.struct({"name": pa.string(), "offset": pa.uint32(), "type": dialect.enum})
    counts = ("row_count", "column_count", "cell_stride", "row_stride", "slice_stride")
    return pa.struct(
        {
            "timestamp": dialect.stamp,
            "frame_id": pa.string(),
            "pose": POSE,
            "cell_size": VECTOR,
            **dict.fromkeys(counts, pa.uint32()),
            "fields": pa.list_(field),
            "data": dialect.binary,
        }
    )


def fox_grid(dialect: Dialect, data: bytes, **changes: Any) -> dict[str, Any]:
    names = ("red", "green", "blue")
    code = {"name": "UINT8", "value": 1} if pa.types.is_struct(dialect.enum) else 1
    first, rest = dialect.stamp[0].name, dialect.stamp[1].name
    return {
        "timestamp": {first: 1, rest: 5},
        "frame_id": "map",
        "pose": {"position": vector(1.0, 2.0, 3.0), "orientation": vector(0.0, 0.0, 0.0, 1.0)},
        "cell_size": vector(0.25, 0.5, 0.75),
        "row_count": 2,
        "column_count": 2,
        "cell_stride": 3,
        "row_stride": 6,
        "slice_stride": 12,
        "fields": [{"name": n, "offset": i, "type": code} for i, n in enumerate(names)],
        "data": data if pa.types.is_binary(dialect.binary) else list(data),
        **changes,
    }


def fox_mapped(dialect: Dialect, *rows: dict[str, Any]) -> dict[str, list[Any]]:
    name = f"{dialect.package}VoxelGrid"
    (lens,) = foxglove_lenses(name)
    column = ComponentColumn(
        ComponentDescriptor(lens.input_component), pa.array([[row] for row in rows], pa.list_(fox_type(dialect)))
    )
    chunk = Chunk.from_columns("/t", [TimeColumn("frame", sequence=range(len(rows)))], [column])
    return columns(LensSet(lens, "forward_unmatched").apply(chunk))


CELLS = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 1], [1, 1, 1]]


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_cells_in_the_order_of_slices_rows_and_columns(dialect: Dialect) -> None:
    found = fox_mapped(dialect, fox_grid(dialect, bytes(range(24))))
    assert found["VoxelGridMap:voxel_indices"] == [CELLS]
    assert found["VoxelGridMap:colors"] == [[0x000102FF + 0x03030300 * i for i in range(8)]]
    assert found["VoxelGridMap:voxel_size"] == [[[0.25, 0.5, 0.75]]]
    assert found["VoxelGridMap:translation"] == [[[1.0, 2.0, 3.0]]]
    assert found["VoxelGridMap:quaternion"] == [[[0.0, 0.0, 0.0, 1.0]]]
    assert found["CoordinateFrame:frame"] == [["map"]]


def test_padding_is_no_cell_and_an_unfinished_slice_none() -> None:
    dialect = DIALECTS["protobuf"]
    padded = bytearray(40)
    for i, (x, y, z) in enumerate(CELLS[:4]):
        padded[z * 20 + y * 8 + x * 3] = i + 1
    first = fox_grid(dialect, bytes(padded[:30]), row_stride=8, slice_stride=20)
    second = fox_grid(dialect, bytes(range(24)), fields=[])
    found = fox_mapped(dialect, first, second)
    assert found["VoxelGridMap:voxel_indices"] == [CELLS[:4], CELLS]
    assert found["VoxelGridMap:colors"] == [[0x010000FF, 0x020000FF, 0x030000FF, 0x040000FF], None]


@pytest.mark.parametrize(
    "changes",
    [
        {"row_count": 0},
        {"cell_stride": 0, "row_stride": 0, "slice_stride": 0},
        {"row_stride": 5},
        {"slice_stride": 11},
        {"row_count": 2**32 - 1, "column_count": 2**32 - 1, "cell_stride": 1, "row_stride": 1, "slice_stride": 1},
    ],
)
def test_cells_in_each_other_stay_a_message_and_the_others_do_not(changes: dict[str, int]) -> None:
    dialect = DIALECTS["protobuf"]
    found = fox_mapped(dialect, fox_grid(dialect, bytes(24), **changes), fox_grid(dialect, bytes(24)))
    assert found["VoxelGridMap:voxel_indices"] == [CELLS]
    assert len([m for m in found["foxglove.VoxelGrid:message"] if m]) == 1


# --- ROS

POINT = pa.struct([(axis, pa.float32()) for axis in "xyz"])
VOXELS = message(
    {
        "data": pa.list_(pa.uint32()),
        "origin": POINT,
        "resolutions": VECTOR,
        **{f"size_{axis}": pa.uint32() for axis in "xyz"},
    }
)


def ros_grid(data: list[int], x: int, y: int, z: int) -> dict[str, Any]:
    stamp = {"stamp": {"sec": 1, "nanosec": 5}, "frame_id": "map"}
    place = {"origin": vector(1.0, 2.0, 3.0), "resolutions": vector(0.5, 0.5, 0.25)}
    return {"header": stamp, "data": data, **place, "size_x": x, "size_y": y, "size_z": z}


def column(*states: str) -> int:
    """A column of voxels, the lowest first: free, unknown or marked."""
    bits = {"free": 0, "unknown": 1, "marked": 0x1_0001}
    return sum(bits[state] << z for z, state in enumerate(states))


@pytest.mark.parametrize("name", ["nav2_msgs/msg/VoxelGrid", "nav2_msgs::msg::VoxelGrid", "costmap_2d/VoxelGrid"])
def test_known_voxels_by_their_state(name: str) -> None:
    free, unknown, marked = "free", "unknown", "marked"
    data = [column(free, unknown), column(marked, free), column(unknown, marked), column(free, marked)]
    made = mapped(name, VOXELS, [ros_grid(data, 2, 2, 2), ros_grid([column(marked)], 1, 1, 40), ros_grid([1], 1, 1, 1)])
    found = columns(made)
    assert found["VoxelGridMap:voxel_indices"] == [
        [[0, 0, 0], [1, 0, 0], [1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 1, 1]],
        [[0, 0, z] for z in range(16)],
        [],
    ]
    assert found["VoxelGridMap:values"] == [[0.0, 1.0, 0.0, 1.0, 0.0, 1.0], [1.0] + [0.0] * 15, []]
    red, green = 0xFF0000FF, 0x00FF00FF
    assert found["VoxelGridMap:colors"][0] == [green, red, green, red, green, red]
    assert found["VoxelGridMap:opacity"] == [[0.5]] * 3
    assert found["VoxelGridMap:translation"] == [[[1.0, 2.0, 3.0]]] * 3
    assert found["VoxelGridMap:voxel_size"] == [[[0.5, 0.5, 0.25]]] * 3
    assert times(made) == [1_000_000_005] * 3


def test_a_grid_without_all_columns_stays_a_message() -> None:
    made = mapped("nav2_msgs/msg/VoxelGrid", VOXELS, [ros_grid([0], 1, 1, 1), ros_grid([0], 2, 1, 1)])
    found = columns(made)
    assert found["VoxelGridMap:values"] == [[0.0]]
    assert len([m for m in found["nav2_msgs.msg.VoxelGrid:message"] if m]) == 1


def test_the_peer_reads_the_same(tmp_path: Path) -> None:
    chunk_api = pytest.importorskip("rerun.chunk")
    from mcap_ros2.writer import Writer

    definition = (
        "std_msgs/Header header\nuint32[] data\ngeometry_msgs/Point32 origin\ngeometry_msgs/Vector3 resolutions\n"
        "uint32 size_x\nuint32 size_y\nuint32 size_z\n"
        f"{'=' * 80}\nMSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n"
        f"{'=' * 80}\nMSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n"
        f"{'=' * 80}\nMSG: geometry_msgs/Point32\nfloat32 x\nfloat32 y\nfloat32 z\n"
        f"{'=' * 80}\nMSG: geometry_msgs/Vector3\nfloat64 x\nfloat64 y\nfloat64 z\n"
    )
    path = tmp_path / "x.mcap"
    random = np.random.default_rng(5)
    with path.open("wb") as file:
        writer = Writer(file)
        schema = writer.register_msgdef("nav2_msgs/msg/VoxelGrid", definition)
        for i, (x, y, z) in enumerate([(3, 2, 4), (1, 5, 16), (0, 0, 3)]):
            data = random.integers(0, 2**32, x * y, dtype=np.uint32).tolist()
            writer.write_message("/v", schema, ros_grid(data, x, y, z), i, i, i)
        writer.finish()

    def values(chunks: list[Any]) -> dict[str, list[Any]]:
        batches = [c.to_record_batch() for c in chunks if c.entity_path == "/v" and c.timeline_names]
        found = {n: b.column(n).to_pylist() for b in batches for n in b.schema.names if "VoxelGridMap" in n}
        assert found
        return found

    theirs = values(chunk_api.McapReader(path).stream().to_chunks())
    assert values(McapReader(path).stream().to_chunks(executor="inline")) == theirs
