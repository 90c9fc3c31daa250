"""The image of the Dockerfile, built and run without Docker: in an overlay of this machine's files, by a bare uid."""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from places import DATA, REPOSITORY

PROGRAMS = ("unshare", "setpriv", "chroot", "mount")
SERVED = """
import sys
from rerun.catalog import CatalogClient
client = CatalogClient(f"rerun+http://127.0.0.1:{sys.argv[1]}", token=sys.argv[2])
print("served:", sorted(dataset.name for dataset in client.datasets()))
"""
"""What a client asks of the server in the container."""

FREE = "import socket; print(socket.create_server(('127.0.0.1', 0)).getsockname()[1])"

LIBRARY = r"""
set -euo pipefail
stage() {  # stage NAME: a machine with this Python, without Java and without an environment
  root=$work/$1
  mkdir -p "$work/upper-$1" "$work/inner-$1" "$root"
  mount -t overlay overlay -o "lowerdir=/,upperdir=$work/upper-$1,workdir=$work/inner-$1" "$root" || exit 77
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
  chmod 711 "$root/root"  # Python may be there, and belongs to everybody in the image
  rm -f "$root/usr/bin/java" "$root/etc/alternatives/java"
  chroot "$root" "$python" -m venv /usr/local/image
}
enter() {  # enter USER:GROUP COMMAND…: as a container does, without an environment; only root has capabilities
  local user=$1 home=/ dropped=(--clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs)
  [ "$user" != 0:0 ] || { home=/root; dropped=(--clear-groups); }
  shift
  PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$root" setpriv --reuid "${user%:*}" --regid "${user#*:}" "${dropped[@]}" \
    env -i PATH=/usr/local/image/bin:/usr/bin:/bin HOME=$home "${settings[@]}" sh -c 'cd /tmp && exec "$@"' sh "$@"
}
"""


def test_the_context_of_the_image_is_what_the_wheel_needs() -> None:
    tops = {path.name for path in REPOSITORY.iterdir() if not is_ignored(path.name)}
    assert tops == {"engine", "lenses", "readers", "spark_names", "pyproject.toml", "setup.py", "README.md", "LICENSE"}
    assert not is_ignored("engine/chunk/chunk.py")
    assert is_ignored("engine/__pycache__/errors.cpython-311.pyc")
    assert is_ignored(".venv/bin/python")


def is_ignored(name: str) -> bool:
    """Whether ``.dockerignore`` leaves out a path: the last rule that fits it, or a folder above it, decides."""
    parts = Path(name).parts
    above = ["/".join(parts[: i + 1]) for i in range(len(parts))]
    ignored = False
    for rule in (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines():
        if rule and not rule.startswith("#"):
            pattern = rule.removeprefix("!")
            loose = pattern.removeprefix("**/")
            if any(
                (path.count("/") == pattern.count("/") and fnmatch.fnmatch(path, pattern))
                or (loose != pattern and fnmatch.fnmatch(Path(path).name, loose))
                for path in above
            ):
                ignored = not rule.startswith("!")
    return ignored


def context(folder: Path) -> Path:
    """What ``COPY .`` copies."""
    for top in REPOSITORY.iterdir():
        if not is_ignored(top.name):
            for path in [top] if top.is_file() else sorted(top.rglob("*")):
                name = str(path.relative_to(REPOSITORY))
                if path.is_file() and not is_ignored(name):
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(path, folder / name)
    return folder


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, each with its arguments."""
    text = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.replace("\\\n", "").splitlines() if line and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


def building(built_from: Path) -> tuple[list[str], dict[str, str]]:
    """Commands of the shell that make the image, and what it says of running: USER, ENTRYPOINT, CMD."""
    made, told = [], {}
    for word, rest in instructions():
        if word == "FROM":
            made.append(f"stage {rest.partition(' AS ')[2] or 'image'}")
        elif word == "RUN":
            made.append(f"enter 0:0 sh -c {shlex.quote(rest.replace('--no-cache-dir ', ''))}")
        elif word == "ARG":
            made.append(f"settings+=({shlex.quote(rest)})")
        elif word == "COPY" and rest.startswith("--from="):
            source, path, target = rest.removeprefix("--from=").split()
            made.append(f'cp -a "$work/{source}{path}" "$root{target}"')
        elif word == "COPY":
            made.append(f'cp -a {built_from} "$root{rest.split()[1]}"')
        else:
            told[word] = rest
    return made, told


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes an overlay")
@pytest.mark.skipif(not all(map(shutil.which, PROGRAMS)), reason=f"needs {', '.join(PROGRAMS)}")
def test_the_image_converts_and_serves_for_a_user_without_a_name(tmp_path: Path) -> None:
    pytest.importorskip("rerun.catalog")
    made, told = building(context(tmp_path / "context"))
    settings = [f"{name}={value}" for name, value in os.environ.items() if name.startswith("PIP_")] + ["PIP_QUIET=1"]
    user, entry = told["USER"], shlex.join(words_of(told["ENTRYPOINT"]))
    script = [
        LIBRARY,
        f"work={tmp_path} python={Path(sys.executable).resolve()} settings=({shlex.join(settings)})",
        *made,
        f'cp {DATA / "demo.mcap"} "$root/lake/demo.mcap"',
        f"enter {user} {entry} convert /lake/demo.mcap -o /lake/demo.rrd",
        f"enter {user} {entry} register /lake drives /lake/demo.rrd",
        f"port=$({sys.executable} -c {shlex.quote(FREE)})",  # not before, as building takes minutes
        f"enter {user} {entry} {shlex.join(words_of(told['CMD']))} --port $port 2>$work/log &",
        f"enter {user} {entry} serve token /lake >$work/token",
        'for _ in {1..300}; do ! grep -q "is served at" $work/log || break; sleep 0.1; done; cat $work/log',
        f'{sys.executable} -W ignore -c {shlex.quote(SERVED)} $port "$(cat $work/token)"',
    ]
    # The server ends with the script, as everything in its namespace does.
    command = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "bash", "-c"]
    done = subprocess.run([*command, "\n".join(script)], cwd="/", capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip(f"no overlay can be made here: {done.stderr}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"demo\.mcap -> .*demo\.rrd: 3,523 rows", done.stderr)
    assert "served: ['drives']" in done.stdout


def words_of(text: str) -> list[str]:
    """The words of an instruction in the form of a list."""
    return re.findall(r'"([^"]*)"', text)
