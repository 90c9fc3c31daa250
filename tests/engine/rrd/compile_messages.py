"""Compile the two schema files into ``messages.binpb``: ``python tests/engine/rrd/compile_messages.py``.

Needs ``grpcio-tools`` (only for this; the package itself reads the compiled set with any ``protobuf`` release).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parents[3] / "engine" / "rrd"
COMPILED = HERE / "messages.binpb"


def compile_messages() -> bytes:
    """The serialised ``FileDescriptorSet`` of ``messages.proto`` and what it imports."""
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out.binpb")
        code = protoc.main(
            ["protoc", f"-I{HERE}", "--include_imports", f"--descriptor_set_out={out}", str(HERE / "messages.proto")]
        )
        if code != 0:
            raise RuntimeError(f"protoc failed with exit code {code}")
        return out.read_bytes()


if __name__ == "__main__":
    COMPILED.write_bytes(compile_messages())
