"""Damage versions of a catalog, and give entries names of every kind.

    python tests/fuzz/fuzz_catalog.py [--mutants 2000] [--names 5000] [--seed 1]

A damaged version is a ``ReadError`` that names its file, or is read as it was; it never gives other entries. A name
comes back exact or is refused, and no file ever lies outside of the catalog, or in it under another name than the
catalog's own. Prints what is wrong, and ends with 1 where something is.
"""

from __future__ import annotations

import argparse
import random
import string
import sys
import tempfile
from pathlib import Path
from typing import Final

from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.catalog.entries import MOST_CHARACTERS_OF_A_NAME
from chunkmill.engine.catalog.entry_log import EntryLog
from chunkmill.engine.errors import ReadError, UsageError
from hypothesis import given, seed, settings
from hypothesis import strategies as st

ALLOWED: Final = set(string.ascii_letters + string.digits + "_-.:[] ")
ODD: Final = ["", "..", ".", "../../x", "a" * MOST_CHARACTERS_OF_A_NAME, "b" * 181, "con", "a\n", "__x", "~", "%2e%2e"]
OF_EXAMPLE: Final = 5


def mutated(data: bytes, draw: random.Random) -> bytes:
    """The bytes with one thing changed: a bit, some bytes, an end that is missing, or a piece that is there twice."""
    at, kind = draw.randrange(len(data)), draw.randrange(4)
    if kind == 0:
        return data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :]
    if kind == 1:
        return data[:at]
    more = draw.randbytes(4) if kind == 2 else data[at : at + draw.randrange(1, 40)]
    return data[:at] + more + data[at:]


def wrong_mutants(folder: Path, number: int, start: int) -> list[str]:
    """Damage a version so often; what is wrong."""
    client, draw, wrong = CatalogClient(folder), random.Random(start), []
    for name in ("a", "b"):
        client.create_dataset(name)
    log = EntryLog(folder)
    whole = log.read()
    version = folder / "catalog" / "versions" / "00000002.json"
    data = version.read_bytes()
    for at in range(number):
        version.write_bytes(mutated(data, draw))
        try:
            if log.read() != whole:
                wrong.append(f"mutant {at} gives other entries")
        except ReadError as error:
            if error.path != str(version):
                wrong.append(f"mutant {at}: the error names {error.path}")
    return wrong


def wrong_names(folder: Path, number: int, start: int) -> list[str]:
    """Give about so many names; what is wrong."""
    wrong: list[str] = []
    names = st.one_of(st.text(max_size=6), st.text("abz/\\.:[]_- \0", max_size=8), st.sampled_from(ODD))

    @seed(start)
    @settings(max_examples=max(1, number // OF_EXAMPLE), deadline=None, database=None)
    @given(st.lists(names, min_size=OF_EXAMPLE, max_size=OF_EXAMPLE, unique=True))
    def check(given_names: list[str]) -> None:
        wrong.extend(_wrong_of(Path(tempfile.mkdtemp(dir=folder)), given_names))

    check()
    return wrong


def _wrong_of(around: Path, names: list[str]) -> list[str]:
    client, wrong, taken = CatalogClient(around / "lake"), [], []
    for name in names:
        is_good = 0 < len(name) <= MOST_CHARACTERS_OF_A_NAME and set(name) <= ALLOWED and not name.startswith("__")
        try:
            made = client.create_dataset(name)
        except UsageError as error:
            if is_good:
                wrong.append(f"{name!r} is refused: {error}")
            continue
        taken.append(name)
        if not is_good or made.name != name or client.get_dataset(name) != made:
            wrong.append(f"{name!r} is taken as {made.name!r}")
    if CatalogClient(around / "lake").dataset_names() != sorted(taken):
        wrong.append(f"{taken} come back as {client.dataset_names()}")
    paths = [path.relative_to(around).as_posix() for path in around.rglob("*") if path.is_file()]
    return wrong + [f"{names} makes {path}" for path in paths if not path.startswith("lake/catalog/versions/0000")]


def main() -> int:
    """The command line; gives its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mutants", type=int, default=2000)
    parser.add_argument("--names", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wrong = wrong_mutants(Path(folder) / "mutants", options.mutants, options.seed)
        wrong += wrong_names(Path(folder), options.names, options.seed)
    print("\n".join(wrong) or f"{options.mutants} mutants and {options.names} names: nothing is wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
