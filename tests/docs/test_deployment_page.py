"""The files of the page about deployment: checked by their schemas, and what they say run on this machine."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.catalog.server import IssuerOptions
from chunkmill.engine.cli.commands import commands
from places import DATA, REPOSITORY

yaml = pytest.importorskip("yaml")

FOLDER = REPOSITORY / "docs" / "deployment"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
MANIFESTS = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
OF_KIND = {(each["kind"], each["metadata"]["name"]): each for each in MANIFESTS}
POD = OF_KIND["Deployment", "chunkmill"]["spec"]["template"]["spec"]
CRON_POD = OF_KIND["CronJob", "chunkmill-ingest"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
OLDEST, NEWEST = "1.30", "1.34"
"""Versions of Kubernetes whose schemas are asked; the first has what the manifests need."""

COMMANDS = {
    **{f"compose {name}": service["command"] for name, service in COMPOSE["services"].items()},
    "deployment": POD["containers"][0]["args"],
    "cron job": CRON_POD["containers"][0]["args"],
}
SERVICE_KEYS = {
    *("image", "build", "command", "restart", "read_only", "tmpfs", "cap_drop", "security_opt", "ports", "volumes"),
    *("stop_grace_period", "healthcheck", "depends_on"),
}
"""Keys of a service in the specification of Compose that the file uses."""


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_manifests_are_those_of_the_schema(version: str) -> None:
    validator = pytest.importorskip("kubernetes_validate")
    for manifest in MANIFESTS:
        validator.validate(manifest, version, strict=True)
    wrong = json.loads(json.dumps(OF_KIND["Deployment", "chunkmill"]))
    wrong["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(validator.ValidationError):
        validator.validate(wrong, version, strict=True)


def test_manifests_fit_together() -> None:
    claims = {name for kind, name in OF_KIND if kind == "PersistentVolumeClaim"}
    for pod in (POD, CRON_POD):
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        used = {
            volume["persistentVolumeClaim"]["claimName"]
            for volume in volumes.values()
            if len(volume) == 2 and "persistentVolumeClaim" in volume
        }
        assert used <= claims
        (container,) = pod["containers"]
        assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
        assert container["securityContext"]["readOnlyRootFilesystem"] and pod["securityContext"]["runAsNonRoot"]
    labels = OF_KIND["Deployment", "chunkmill"]["spec"]["template"]["metadata"]["labels"]
    assert OF_KIND["Service", "chunkmill"]["spec"]["selector"] == labels
    (container,) = POD["containers"]
    drain = float(COMMANDS["deployment"][COMMANDS["deployment"].index("--drain-seconds") + 1])
    before = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert POD["terminationGracePeriodSeconds"] >= drain + before + 5
    probes = {container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
    assert probes == {"/healthz", "/readyz"}
    assert not [each for each in MANIFESTS if each["kind"] == "Secret"]  # a secret stands in no file


def test_the_compose_file_has_known_keys_and_names() -> None:
    """There is no validator of Compose's schema without its program: `docker compose config` is the whole check."""
    assert set(COMPOSE) == {"name", "services", "x-chunkmill"}
    for name, service in COMPOSE["services"].items():
        assert set(service) <= SERVICE_KEYS, name
        assert set(service.get("depends_on", ())) <= set(COMPOSE["services"])
        for published in service.get("ports", ()):
            assert re.fullmatch(r"(127\.0\.0\.1:)?\d+:51234", published)
    assert COMPOSE["services"]["viewer"]["ports"][0].startswith("127.0.0.1:")  # it wants no tokens
    built = COMPOSE["services"]["serve"]["build"]
    assert (FOLDER / built["context"]).resolve() == REPOSITORY.resolve()
    assert f"ARG {next(iter(built['args']))}=" in (REPOSITORY / "Dockerfile").read_text()


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_line_takes_each_command(name: str) -> None:
    words = [str(word) for word in COMMANDS[name]]
    context = click.Context(commands, info_name="chunkmill")
    found, command, rest = commands.resolve_command(context, words)
    if isinstance(command, click.Group):
        inner = click.Context(command, info_name=found, parent=context)
        rest = command.parse_args(inner, rest) and [*inner._protected_args, *inner.args]
        _, command, rest = command.resolve_command(inner, rest)
    assert command is not None
    parser = command.make_parser(click.Context(command))
    options, left, _ = parser.parse_args(list(rest))
    assert options and not left


def test_the_options_of_an_issuer_are_read() -> None:
    options = IssuerOptions.read(FOLDER / "issuer.toml")
    assert options.permissions["labelers"] == ["read:drives", "write:labels"]


def test_the_page_names_each_file_and_option() -> None:
    page = (REPOSITORY / "docs" / "deployment.md").read_text()
    for path in FOLDER.iterdir():
        assert f"(deployment/{path.name})" in page, path.name


class Machine:
    """This machine in place of a container: places of the image are folders of a test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("lake", "landing"):
            (folder / name).mkdir()
        self.servers: list[subprocess.Popen[bytes]] = []

    def words(self, name: str) -> list[str]:
        places = {"/lake": str(self.folder / "lake"), "/landing": str(self.folder / "landing")}
        return [places.get(str(word), str(word)) for word in COMMANDS[name]]

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-c", "from chunkmill.engine.cli import main; main()", *words]

    def run(self, *words: str) -> str:
        done = subprocess.run(self.command(*words), capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def serve(self, name: str) -> int:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = int(listener.getsockname()[1])
        log = self.folder / f"log of {name}"
        words = [*self.words(name), "--port", str(port)]
        with log.open("wb") as sink:
            self.servers.append(subprocess.Popen(self.command(*words), stdout=sink, stderr=sink))
        ends = time.monotonic() + 60
        while self.status(port, "/readyz") != 200:
            assert self.servers[-1].poll() is None and time.monotonic() < ends, log.read_text()
            time.sleep(0.1)
        return port

    def status(self, port: int, path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    for server in made.servers:
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0


@pytest.mark.heavy
def test_what_they_say_runs(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ingestion, a server with tokens beside it, and one that only reads, for browsers."""
    (machine.folder / "landing" / "demo.mcap").write_bytes((DATA / "demo.mcap").read_bytes())
    ingest = [word if word != "60s" else "0s" for word in machine.words("cron job")]
    machine.run(*ingest)
    assert len(CatalogClient(machine.folder / "lake").get_dataset("drives").segment_ids()) == 1
    secret = machine.folder / "secret"
    secret.write_text("a" * 64)
    secret.chmod(0o400)
    monkeypatch.setenv("CHUNKMILL_SERVE_SECRET_FILE", str(secret))
    port = machine.serve("deployment")
    assert machine.status(port, "/healthz") == 200
    assert machine.status(port, "/metrics") == 401
    bearer = machine.run("serve", "token", str(machine.folder / "lake")).strip()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {bearer}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert b"chunkmill_serve_calls" in answer.read()
    if "--web" in COMMANDS["compose viewer"]:
        pytest.importorskip("rerun")
    viewer = machine.serve("compose viewer")
    assert machine.status(viewer, "/metrics") == 200
    assert machine.status(viewer, "/re_viewer.js") == 200
