"""Ingest recordings into a lake, serve it, fetch each with ``rerun download``, and compare it with what went in.

    python tests/conformance/downloads.py ../shared/data/mcap/*.mcap ../shared/data/rrd/*.rrd

RRDs are registered where they lie and by copy, recordings of other formats by copy. Of the original and of the file
that was downloaded each component has its types, its number of rows and all times and values, as ``golden_content.py``
makes them: both are to be the same. Rerun 0.41 says of each row's items that they may be null, whatever the file says
that it reads, from its own server, too; so this is not compared. ``rerun rrd verify`` has to take the file, where it
takes the original, too.

Prints what differs and the figures, and ends with 1 where something does.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chunkmill.engine.catalog import CatalogClient, DatasetEntry
from golden_content import Held, Key, content
from served_tests import Served

_NOT_NULL = re.compile(r"^(list<item: .*) not null>$")

PROGRAMS = Path(sys.executable).parent


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as scratch:
        counts = compare_all(options.paths, Path(scratch))
    print(dict(counts))
    return 1 if counts["differing"] else 0


def compare_all(paths: list[Path], folder: Path) -> Counter[str]:
    """Ingest, serve, download and compare; print what differs, and give the figures."""
    counts: Counter[str] = Counter()
    catalog = CatalogClient(folder / "lake")
    command = f"{PROGRAMS}/chunkmill serve {folder}/lake --create --port {{port}} -q"
    server = Served(command, folder, f"{folder}/serve.log")
    try:
        for number, path in enumerate(paths):
            for copy in (False, True) if path.suffix == ".rrd" else (True,):
                name = f"{path.name} {'by copy' if copy else 'in place'}"
                dataset = catalog.create_dataset(f"d{number}{copy}")
                handle = dataset.register(path.absolute(), copy=copy, executor="inline")
                if any(result.error for results in handle.results() for result in results):
                    counts["refused"] += 1
                    continue
                counts["segments"] += len(dataset.segment_ids())
                found = list(differences(path, dataset, server.port, folder / f"{number}{copy}"))
                counts["differing" if found else "equal"] += 1
                for text in found:
                    print(f"{name}: {text}", flush=True)
    finally:
        server.kill()
    return counts


def differences(path: Path, dataset: DatasetEntry, port: int, folder: Path) -> Iterator[str]:
    """What the files that are downloaded, one of each segment, hold otherwise than the original."""
    files = []
    for at, segment in enumerate(sorted(dataset.segment_ids())):
        target = folder / str(at)
        target.mkdir(parents=True)
        url = f"rerun+http://127.0.0.1:{port}/dataset/{dataset.id}?segment_id={segment}"
        run = subprocess.run(
            [PROGRAMS / "rerun", "download", "-o", target, url], capture_output=True, text=True, check=False
        )
        if run.returncode:
            yield f"{segment} is not downloaded: {run.stderr.strip()[-300:]}"
            return
        files += list(target.iterdir())
    golden = [
        {"entity": entity, "static": static, "component": component, "variants": held.variants}
        for (entity, static, component), held in content(path).items()
    ]
    yield from differing(content(path, golden), joined(files, golden))
    for file in files:
        complaint = verified(file)
        if complaint and not (path.suffix == ".rrd" and verified(path)):
            yield f"rerun rrd verify: {complaint}"
        file.unlink()


def joined(files: list[Path], golden: list[dict[str, Any]]) -> dict[Key, Held]:
    """What several files hold together; values of what ``golden`` has."""
    found: dict[Key, Held] = {}
    for file in files:
        for key, held in content(file, golden).items():
            there = found.setdefault(key, Held([], [], set()))
            there.variants.extend(one for one in held.variants if one not in there.variants)
            there.lines.extend(held.lines)
            there.timelines.update(held.timelines)
    return found


def differing(original: dict[Key, Held], other: dict[Key, Held]) -> Iterator[str]:
    """The components that are not the same."""
    for key in sorted({*original, *other}):
        one, two = original.get(key), other.get(key)
        if one is None or two is None:
            yield f"{key} is {'missing' if two is None else 'not in the original'}"
        elif as_rerun_reads(one.variants) != as_rerun_reads(two.variants):
            yield f"{key} has other types: {one.variants} became {two.variants}"
        elif two.timelines:
            yield f"{key} is on other timelines, too: {two.timelines}"
        elif sorted(one.lines) != sorted(two.lines):
            yield f"{key}: {len(one.lines)} values became {len(two.lines)}, or others"


def as_rerun_reads(variants: list[dict[str, Any]]) -> list[str]:
    """What there is to know of a component, but for whether a row's items may be null."""
    return sorted({repr({**one, "type": _NOT_NULL.sub(r"\1>", str(one.get("type")))}) for one in variants})


def verified(path: Path) -> str:
    """What ``rerun rrd verify`` complains of; nothing where it takes the file."""
    run = subprocess.run([PROGRAMS / "rerun", "rrd", "verify", path], capture_output=True, text=True, check=False)
    return run.stderr.strip()[-300:] if run.returncode else ""


if __name__ == "__main__":
    sys.exit(main())
