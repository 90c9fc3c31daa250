"""Robot descriptions: how they are read, what becomes of them, and what they cannot do."""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path

import pytest
from chunkmill.engine.chunk import Chunk
from chunkmill.engine.errors import ReadWarning
from chunkmill.readers.mcap import McapSource
from chunkmill.readers.mcap.decoders import McapOptions
from chunkmill.readers.mcap.robots import MeshError, UrdfError, load_mesh, parse_urdf, quaternion

from tests.readers.mcap.mcap_bytes import channel, chunk_of, chunks_of, mcap, message, record, schema, written

DEFINITIONS = (
    schema(1, "std_msgs/msg/String", "ros2msg", b"string data\n"),
    channel(1, "/robot_description", "cdr", 1),
    channel(2, "/other", "cdr", 1),
)
BOX = '<box size="1 2 3"/>'


def visual(geometry: str = BOX, inside: str = "", name: str = "") -> str:
    return f"<visual{name}>{inside}<geometry>{geometry}</geometry></visual>"


def collision(geometry: str = BOX) -> str:
    return f"<collision><geometry>{geometry}</geometry></collision>"


def link(name: str, *inside: str) -> str:
    return f'<link name="{name}">{"".join(inside)}</link>'


def joint(parent: str, child: str, kind: str = "fixed") -> str:
    return f'<joint name="j" type="{kind}"><parent link="{parent}"/><child link="{child}"/></joint>'


def robot(*inside: str, name: str = "r") -> str:
    return f'<?xml version="1.0"?><robot name="{name}">{"".join(inside)}</robot>'


def cdr(text: str) -> bytes:
    data = text.encode() + b"\0"
    return b"\0\1\0\0" + struct.pack("<I", len(data)) + data


def recording(tmp_path: Path, *texts: str) -> Path:
    return written(tmp_path, mcap([*DEFINITIONS, chunk_of([message(1, i, cdr(t)) for i, t in enumerate(texts)])]))


def robots(path: Path, **options: object) -> list[Chunk]:
    return chunks_of(path, **({"decoders": ["urdf"]} | options))


def told(chunk: Chunk) -> dict[str, object]:
    batch = chunk.to_record_batch()
    return {str(c.descriptor): batch.column(str(c.descriptor))[0].as_py() for c in chunk.header.components}


def shapes(tmp_path: Path, *inside: str) -> list[tuple[str, dict[str, object]]]:
    """Entity and geometry of each shape of a robot."""
    chunks = robots(recording(tmp_path, robot(*inside)))
    assert all(c.is_static and c.num_rows == 1 for c in chunks)
    return [(c.entity_path, told(c)) for c in chunks[3::3]]


class TestShapes:
    def test_the_chunks_of_a_shape(self, tmp_path: Path) -> None:
        origin = '<origin xyz="1 2 3" rpy="0.1 0.2 0.3"/>'
        root, pose, frame, box = robots(recording(tmp_path, robot(link("base", visual(BOX, origin)))))
        assert (root.entity_path, told(root)) == ("/r", {"CoordinateFrame:frame": ["base"]})
        assert {c.entity_path for c in (pose, frame, box)} == {"/r/visual_geometries/base/visual_0"}
        assert told(pose) == {
            "InstancePoses3D:quaternions": [
                [0.03427080065011978, 0.10602051019668579, 0.14357218146324158, 0.983347475528717]
            ],
            "InstancePoses3D:translations": [[1.0, 2.0, 3.0]],
        }
        assert told(frame) == {"CoordinateFrame:frame": ["base"]}
        assert told(box) == {"Boxes3D:colors": [0xFFFFFFFF], "Boxes3D:half_sizes": [[0.5, 1.0, 1.5]]}

    def test_every_kind(self, tmp_path: Path) -> None:
        found = shapes(
            tmp_path,
            link(
                "a",
                collision(),
                collision('<sphere radius="2.5"/>'),
                collision('<cylinder radius="1" length="4"/>'),
                collision('<capsule radius="1" length="4"/>'),
            ),
        )
        white = [0xFFFFFFFF]
        below = "/r/collision_geometries"
        assert found == [
            (f"{below}/box/a/collision_0", {"Boxes3D:colors": white, "Boxes3D:half_sizes": [[0.5, 1.0, 1.5]]}),
            (
                f"{below}/sphere/a/collision_1",
                {"Ellipsoids3D:colors": white, "Ellipsoids3D:half_sizes": [[2.5, 2.5, 2.5]]},
            ),
            (
                f"{below}/cylinder/a/collision_2",
                {"Cylinders3D:colors": white, "Cylinders3D:lengths": [4.0], "Cylinders3D:radii": [1.0]},
            ),
            (
                f"{below}/capsule/a/collision_3",
                {"Capsules3D:colors": white, "Capsules3D:lengths": [4.0], "Capsules3D:radii": [1.0]},
            ),
        ]

    @pytest.mark.parametrize(
        ("rpy", "expected"),
        [
            ("0.3 -0.7 2.9", [0.35349273681640625, 0.09849902987480164, 0.9282310009002686, 0.061057284474372864]),
            ("1.5707963 0 0", [0.7071067690849304, 0.0, 0.0, 0.7071068286895752]),
            ("0 0 3.14159265", [0.0, 0.0, 1.0, -4.371138828673793e-08]),
            ("-1.2 0.4 -2.2", [-0.10488398373126984, 0.5675584673881531, -0.6700001955032349, 0.466879665851593]),
            ("1e-9 2 3", [-0.8393630981445312, 0.05952329933643341, 0.5389488339424133, 0.03821947053074837]),
        ],
    )
    def test_rotations_are_those_of_rerun_to_the_bit(self, rpy: str, expected: list[float]) -> None:
        assert quaternion(tuple(map(float, rpy.split()))).tolist() == expected

    @pytest.mark.parametrize(
        ("rgba", "packed"),
        [
            ("1 0 0 1", 0xFF0000FF),
            ("0.5 0.25 0 0.5", 3146317952),
            ("2 -1 0.001 1", 4278191103),
            ("0 1 0 0", 0),
            ("nan 0 0 1", 0x000000FF),
        ],
    )
    def test_colours(self, tmp_path: Path, rgba: str, packed: int) -> None:
        inline = f'<material name="m"><color rgba="{rgba}"/></material>'
        assert shapes(tmp_path, link("a", visual(BOX, inline)))[0][1]["Boxes3D:colors"] == [packed]

    def test_colours_by_name(self, tmp_path: Path) -> None:
        red, blue = (f'<material name="m"><color rgba="{c} 1"/></material>' for c in ("1 0 0", "0 0 1"))
        found = shapes(
            tmp_path,
            link(
                "a",
                visual(BOX, '<material name="m"/>'),
                visual(BOX, red),
                visual(BOX, '<material name="unknown"/>'),
                visual(BOX, '<material name="m"><texture filename="x.png"/></material>'),
            ),
            blue,
        )
        assert [c["Boxes3D:colors"] for _, c in found] == [[0x0000FFFF], [0xFF0000FF], [0xFFFFFFFF], [0x0000FFFF]]

    def test_links_are_depth_first_from_the_root(self, tmp_path: Path) -> None:
        links = [link(n, visual(), collision()) for n in "cbad"]
        found = shapes(tmp_path, *links, joint("a", "c"), joint("a", "b"), joint("c", "d"))
        assert [e.split("/")[-2] for e, _ in found] == list("aaccddbb")
        assert [e.split("/")[2][:3] for e, _ in found] == ["vis", "col"] * 4

    def test_names_are_parts_of_paths(self, tmp_path: Path) -> None:
        path = recording(tmp_path, robot(link("a/b", visual(BOX, "", ' name="v/x y"'), visual()), name="r x"))
        assert list(dict.fromkeys(c.entity_path for c in robots(path))) == [
            r"/r\ x",
            r"/r\ x/visual_geometries/a\/b/v\/x\ y",
            r"/r\ x/visual_geometries/a\/b/visual_1",
        ]

    def test_a_link_below_two_others_comes_once(self) -> None:
        names = [f"l{i}" for i in range(40)]
        joints = [joint(a, b) for a, b in pairwise(names) for _ in range(2)]
        assert [x.name for x in parse_urdf(robot(*map(link, names), *joints)).links] == names


class TestMeshes:
    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        package = tmp_path / "ros" / "pack"
        (package / "meshes").mkdir(parents=True)
        (package / "meshes" / "a b.STL").write_bytes(b"solid")
        (tmp_path / "ament" / "share" / "pack2").mkdir(parents=True)
        (tmp_path / "ament" / "share" / "pack2" / "m.glb").write_bytes(b"glTF")
        (tmp_path / "secret.txt").write_bytes(b"secret")
        (tmp_path / "outside.stl").write_bytes(b"outside")
        monkeypatch.setenv("ROS_PACKAGE_PATH", f"{tmp_path}/missing:{tmp_path / 'ros'}")
        monkeypatch.setenv("AMENT_PREFIX_PATH", str(tmp_path / "ament"))
        return tmp_path

    def test_where_they_are_found(self, folder: Path) -> None:
        assert load_mesh(f"file://{folder}/outside.stl") == (b"outside", "model/stl")
        assert load_mesh("package://pack/meshes/a b.STL") == (b"solid", "model/stl")
        assert load_mesh("package://pack/meshes/a%20b.STL") == (b"solid", "model/stl")
        assert load_mesh("package://pack2/m.glb") == (b"glTF", "model/gltf-binary")

    def test_a_path_that_is_the_package(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ROS_PACKAGE_PATH", str(folder / "ros" / "pack"))
        assert load_mesh("package://pack/meshes/a b.STL").data == b"solid"

    @pytest.mark.parametrize(
        "uri",
        [
            "package://pack/../../outside.stl",
            "package://pack/%2e%2e/%2e%2e/outside.stl",
            "package:///outside.stl",
            "file://{folder}/secret.txt",
            "file://{folder}/missing.stl",
            "file://{folder}/\0.stl",
            "file:///dev/zero",
            "{folder}/outside.stl",
            "http://host/outside.stl",
        ],
    )
    def test_what_is_not_read(self, folder: Path, uri: str) -> None:
        with pytest.raises(MeshError):
            load_mesh(uri.format(folder=folder))

    def test_one_that_is_too_large(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("chunkmill.readers.mcap.robots.MAX_MESH", 6)
        with pytest.raises(MeshError, match="more than 6 bytes"):
            load_mesh(f"file://{folder}/outside.stl")

    def test_its_chunks(self, folder: Path) -> None:
        mesh = f'<mesh filename="file://{folder}/outside.stl" scale="1 2 3"/>'
        color = '<material name="m"><color rgba="1 0 0 1"/></material>'
        _, pose, _, asset, *_ = robots(recording(folder, robot(link("a", visual(mesh, color)))))
        assert told(pose)["InstancePoses3D:scales"] == [[1.0, 2.0, 3.0]]
        assert told(asset) == {
            "Asset3D:albedo_factor": [0xFF0000FF],
            "Asset3D:blob": [list(b"outside")],
            "Asset3D:media_type": ["model/stl"],
        }

    def test_a_missing_one_costs_the_robot_that_mesh_alone(self, tmp_path: Path) -> None:
        path = recording(tmp_path, robot(link("a", visual('<mesh filename="package://no/m.stl"/>'), visual())))
        with pytest.warns(
            ReadWarning, match=r"the mesh 'package://no/m.stl' was not found; .*/visual_0 has no geometry"
        ):
            chunks = robots(path)
        assert [c.entity_path.split("/")[-1] for c in chunks] == ["r", *["visual_0"] * 2, *["visual_1"] * 3]


class TestMessages:
    def test_the_last_that_can_be_decoded_wins(self, tmp_path: Path) -> None:
        messages = [message(1, i, cdr(robot(link("a"), name=n))) for i, n in enumerate("xyz")]
        path = written(tmp_path, mcap([*DEFINITIONS, chunk_of(messages), message(1, 9, b"\0\1\0\0\xff\0\0\0")]))
        assert [c.entity_path for c in robots(path)] == ["/z"]

    @pytest.mark.parametrize("data", [b"", b"\0\1\0\0", b"\1\1\0\0\2\0\0\0a\0", b"\0\1\0\0\2\0\0\0\xff\0"])
    def test_what_is_no_string(self, tmp_path: Path, data: bytes) -> None:
        assert robots(written(tmp_path, mcap([*DEFINITIONS, message(1, 0, data)]))) == []

    def test_big_endian(self, tmp_path: Path) -> None:
        text = robot(link("a")).encode() + b"\0"
        data = b"\0\0\0\0" + struct.pack(">I", len(text)) + text
        assert len(robots(written(tmp_path, mcap([*DEFINITIONS, message(1, 0, data)])))) == 1

    def test_which_channels(self, tmp_path: Path) -> None:
        text = cdr(robot(link("a")))
        assert robots(written(tmp_path, mcap([*DEFINITIONS, message(2, 0, text)]))) == []
        path = recording(tmp_path, robot(link("a")))
        assert robots(path, exclude_topic_regex=["robot"]) == []
        assert len(robots(path, include_topic_regex=["robot"])) == 1

    def test_behind_the_messages(self, tmp_path: Path) -> None:
        chunks = robots(recording(tmp_path, robot(link("a"))), decoders=["raw", "urdf"])
        assert [c.entity_path for c in chunks] == ["/robot_description", "/r"]

    def test_by_the_index(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        texts = [cdr(robot(link("a"), name=n)) for n in "xy"]
        runs = [
            chunk_of([message(1, 0, texts[0])]),
            chunk_of([message(1, 1, texts[1]), message(1, 2, b"?")]),
            chunk_of([message(2, 3)]),
        ]
        stats = record(11, struct.pack("<QHIIIIQQI", 4, 1, 2, 0, 0, 3, 0, 3, 20) + struct.pack("<HQHQ", 1, 3, 2, 1))
        path = written(tmp_path, mcap([*DEFINITIONS, *runs], [*DEFINITIONS, stats]))
        monkeypatch.setattr("chunkmill.readers.mcap.plan.SPLIT_BYTES", 50)
        source = McapSource(str(path), McapOptions.checked(decoders=["urdf", "raw"]))
        splits = source.splits()
        assert len(splits) > 1
        read = [[c.entity_path for c in source.read(split)] for split in splits]
        assert read[-1][-1] == "/y"
        assert sum(names.count("/y") for names in read) == 1
        alone = McapSource(str(path), McapOptions.checked(decoders=["urdf"]))
        (split,) = alone.splits()
        assert split.start == split.end
        assert [c.entity_path for c in alone.read(split)] == ["/y"]


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("<robot", "unclosed token"),
            ("", "no element found"),
            ('<sdf name="x"/>', "its root element is 'sdf'"),
            (robot(), "it has 0 root links"),
            (robot(link("a"), link("b")), "it has 2 root links"),
            (robot(link("a"), link("b"), joint("a", "b"), joint("b", "a")), "it has 0 root links"),
            (robot(link("a"), joint("a", "z")), "refers to the missing link 'z'"),
            (robot(link("a"), link("b"), joint("a", "b", "weird")), "unknown type 'weird'"),
            (robot("<link/>"), "a link has no attribute 'name'"),
            (robot(link("a", "<visual/>")), "a visual has no geometry"),
            (robot(link("a", visual(""))), "a geometry has 0 shapes"),
            (robot(link("a", visual(BOX + BOX))), "a geometry has 2 shapes"),
            (robot(link("a", visual("<cone/>"))), "a geometry has the unknown shape 'cone'"),
            (robot(link("a", visual("<box/>"))), "a box has no attribute 'size'"),
            (robot(link("a", visual('<box size="1 2"/>'))), "'1 2' are 2 numbers instead of 3"),
            (robot(link("a", visual('<box size="1 x 3"/>'))), "'1 x 3' are not 3 numbers"),
            ('<!DOCTYPE robot [<!ENTITY a "b">]>' + robot(link("&a;"))[21:], "document type definition"),
            ('<!DOCTYPE r [<!ENTITY % p SYSTEM "file:///dev/zero">%p;]><robot/>', "document type definition"),
            (robot("<a>" * 100 + "</a>" * 100), "nested more than 64 deep"),
        ],
    )
    def test_descriptions(self, tmp_path: Path, text: str, why: str) -> None:
        with pytest.raises(UrdfError, match=why):
            parse_urdf(text)
        path = recording(tmp_path, text)
        with pytest.warns(
            ReadWarning, match=f"topic /robot_description: the robot description cannot be read: .*{why}"
        ):
            assert robots(path) == []

    def test_nothing_else_is(self) -> None:
        text = '\ufeff <!DOCTYPE robot><robot name="r" xmlns:xacro="http://x"><gazebo><a/></gazebo>'
        assert parse_urdf(text + link("a", "<!-- c --><inertial/>") + "</robot>\n").links[0].name == "a"
