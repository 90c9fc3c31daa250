"""``Server(port=…)``: a catalog for a while, which others open by its address."""

from __future__ import annotations

import socket
from pathlib import Path

import grpc
import pytest
from chunkmill.engine.catalog import CatalogClient, Server
from chunkmill.engine.catalog.server import secret_of, secret_place, token
from chunkmill.engine.catalog.server.protocol import SERVICE
from chunkmill.engine.storage import RemoteFile
from http_server import serving
from served import recording


def test_the_sdk_opens_its_address(tmp_path: Path) -> None:
    sdk = pytest.importorskip("rerun.catalog")
    (tmp_path / "files").mkdir()
    one, two = (recording(tmp_path, name) for name in ("one", "two"))
    with Server(port=0, datasets={"drives": [one]}, allow=[tmp_path / "files"]) as server:
        client = sdk.CatalogClient(server.url())
        dataset = client.get_dataset("drives")
        dataset.register([two.as_uri()]).wait()
        assert sorted(dataset.segment_ids()) == sorted(server.client().get_dataset("drives").segment_ids())
        assert sorted(dataset.segment_ids()) == ["one", "two"]
        with pytest.raises(PermissionError, match="it is not below a folder of --allow"):
            dataset.register([(tmp_path / "elsewhere.rrd").as_uri()]).wait()
        host, port = server.host(), int(server.url().rpartition(":")[2])
        assert server.url() == f"rerun+http://{host}:{port}" and repr(server) == f"Server({server.url()})"
        with pytest.raises(ValueError, match="is taken by"):
            Server(port=port)
    assert not server.is_running()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, port))
    with pytest.raises(RuntimeError, match="shut down"):
        server.url()


def test_others_than_this_machine_need_a_token(tmp_path: Path) -> None:
    with Server(port=0, host="0.0.0.0", folder=tmp_path) as server:
        port = server.url().rpartition(":")[2]
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_unary(f"/{SERVICE}/WhoAmI")
            with pytest.raises(grpc.RpcError) as refused:
                call(b"", timeout=20)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
            secret = secret_of(secret_place(server.client().url), make=False)
            bearer = token(secret, can_write=False, seconds=60, hosts=["127.0.0.1"], subject="tests")
            assert call(b"", metadata=[("authorization", f"Bearer {bearer}")], timeout=20)


@pytest.mark.parametrize("scheme", ["rerun+http", "rerun+https", "rerun"])
def test_a_client_of_folders_names_the_package_that_opens_addresses(scheme: str) -> None:
    with pytest.raises(ValueError, match="is the address of a server") as refused:
        CatalogClient(f"{scheme}://127.0.0.1:51234")
    assert "Use rerun.catalog.CatalogClient for servers: pip install 'rerun-sdk[catalog]'" in str(refused.value)


def test_files_of_allowed_hosts_are_registered_and_others_are_not_asked(tmp_path: Path) -> None:
    """Also after a redirect; when the server stops, this process may ask all hosts again."""
    sdk = pytest.importorskip("rerun.catalog")
    data = recording(tmp_path, "one").read_bytes()
    with serving() as files, serving() as other:
        files.files["one.rrd"] = other.files["one.rrd"] = data
        files.elsewhere = other.url
        with Server(port=0, folder=tmp_path / "lake", allow=[f"{files.url}/"]) as server:
            client = sdk.CatalogClient(server.url())
            dataset = client.create_dataset("drives")
            for url, text in (
                (f"{other.url}/plain/one.rrd", "it is not below a folder of --allow"),
                (f"{files.url}/away/one.rrd", "are not allowed"),
                (f"{files.url}/away/one.mcap", "are not allowed"),
            ):
                with pytest.raises(Exception, match=text):
                    dataset.register([url]).wait()
            assert other.requests == []
            dataset.register([f"{files.url}/redirect/one.rrd"]).wait()
            assert dataset.segment_ids() == ["one"]
        assert RemoteFile(f"{other.url}/plain/one.rrd").read() == data
