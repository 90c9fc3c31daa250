"""Compile the schema files into their ``messages.binpb``: ``python tests/engine/rrd/compile_messages.py``.

Needs ``grpcio-tools`` (only for this; the package itself reads the compiled sets with any ``protobuf`` release).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

ENGINE = Path(__file__).resolve().parents[3] / "engine"
HERE = ENGINE / "rrd"
COMPILED = HERE / "messages.binpb"
SERVER = ENGINE / "catalog" / "server"
COMPILED_FOR_SERVER = SERVER / "messages.binpb"


def compile_messages(schema: Path = HERE / "messages.proto") -> bytes:
    """The serialised ``FileDescriptorSet`` of a schema file and what it imports."""
    from grpc_tools import protoc

    known = Path(protoc.__file__).with_name("_proto")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out.binpb")
        places = [f"-I{place}" for place in (HERE, SERVER, known)]
        code = protoc.main(["protoc", *places, "--include_imports", f"--descriptor_set_out={out}", str(schema)])
        if code != 0:
            raise RuntimeError(f"protoc failed with exit code {code}")
        return out.read_bytes()


if __name__ == "__main__":
    COMPILED.write_bytes(compile_messages())
    COMPILED_FOR_SERVER.write_bytes(compile_messages(SERVER / "cloud.proto"))
