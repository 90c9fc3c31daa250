"""Digests of a Lance table's files, which are written with each version that is committed here.

::

    table.lance/
      _digests/<version>.json          the files that a version added, each with its size and XXH3-128
      _digests/<version>-<token>.json  the files of all versions up to that one, joined by a cleanup

The files are the version's manifest and transaction, files of rows, lists of deleted rows, index files, and separate
files of blobs. Lance never changes a written file, and never reuses a name. So one digest serves all versions, a commit
reads only the files that it added, and the next cleanup drops digests of removed files. The first line of a digest file
is a digest of its other lines. A digest file also has the authors of versions, by number.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import xxhash

from ..errors import ReadError, SourceMissingError
from ..limits import MIB
from ..locations import Location
from ..rrd import Findings, Verification
from ..storage import author
from ..storage.folder import OPEN_SUFFIX, Folder
from .faults import RESTORE, missing_files
from .place import LancePlace
from .rows import is_blob

OF_A_VERSION: Final = ("_versions/", "_transactions/")
"""The folders with separate files for each version."""
NUMBERS: Final = 2**64 - 1
"""The sum of a version's number and the number in its manifest's name."""

_FOLDER: Final = "_digests"
_NAME: Final = re.compile(r"(\d{20})(-[0-9a-f]{8})?\.json")
_PIECE_BYTES: Final = 8 * MIB
_AT_ONCE: Final = 8
_MOST_TRIES: Final = 5


class FileDigest(NamedTuple):
    """The size and the digest of a file, and the version that added it."""

    version: int
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class TableVerification(Verification):
    """The result of reading all files of a table.

    ``chunks`` counts the readable files, ``digests`` the files that match the digest of their commit, and ``rows`` the
    rows of the newest version, ``version``. ``undigested`` are the files without a digest, sorted, among the newest
    version's files and the other versions' manifests.
    """

    version: int = 0
    undigested: tuple[str, ...] = ()

    @classmethod
    def of(cls, findings: Findings, version: int = 0, undigested: Iterable[str] = ()) -> TableVerification:
        """Return the result of findings."""
        verification = findings.verification()
        files = tuple(sorted(undigested))
        return cls(
            verification.chunks,
            verification.rows,
            verification.digests,
            verification.faults,
            verification.more_faults,
            version,
            files,
        )


class FileDigests:
    """The file digests of the table at a place. Errors call the table ``name``.

    Raises ``OSError`` or ``ReadError`` if digests cannot be read.
    """

    def __init__(self, place: Location, name: str) -> None:
        self._place = place
        self._name = name
        self._folder = Folder.at(place / _FOLDER)

    def keep(self, dataset: Any, existing: Mapping[str, FileDigest], base: int | None = None) -> None:
        """Write the digests of the files that a version added. Files in ``existing`` are not read again.

        ``base`` is the version that the writer started from, by default the previous one. A compaction commits another
        version in between, which adds no rows: its files get digests, too.
        """
        version = int(dataset.version)
        paths = self._appended_files(dataset, version)
        if paths is None:
            base = version - 1 if base is None else base
            named = files_of_versions(dataset, base)
            for number in range(base + 1, version):
                added = named.get(number, set()) - named.get(number - 1, set())
                if added and all(path.startswith(OF_A_VERSION) for path in added):
                    self._keep(number, added, {})
            # If the previous version is gone, it is unknown which version added these files.
            paths = sorted(named[version] - named.get(version - 1, named[version] if version > 1 else set()))
        self._keep(version, [*paths, *self._blobs_beside(dataset, paths)], existing)

    def _keep(self, version: int, paths: Collection[str], existing: Mapping[str, FileDigest]) -> None:
        digests = {path: existing[path] for path in paths if path in existing}
        missing = [path for path in paths if path not in existing]
        if isinstance(self._place, Path):  # its files are still in memory
            digests |= {path: digest for path in missing if (digest := self.digest_of(path)) is not None}
        else:
            with ThreadPoolExecutor(_AT_ONCE, "chunkmill-digests") as threads:
                pairs = zip(missing, threads.map(self.digest_of, missing), strict=True)
                digests |= {path: digest for path, digest in pairs if digest is not None}
        entries = {path: digest._replace(version=version) for path, digest in digests.items()}
        name = author()
        self._write(f"{version:020}.json", entries, {} if name is None else {version: name})

    def _appended_files(self, dataset: Any, version: int) -> list[str] | None:
        """Return the files that an append lists as added, or None for most other commits.

        A restoration adds no data files: earlier versions added them.
        """
        import lance

        try:
            transaction = dataset.read_transaction(version)
        except TypeError:  # pylance cannot read the transaction of a compaction with indexes
            return None
        own = [self.manifest_of(version), f"_transactions/{transaction.read_version}-{transaction.uuid}.txn"]
        if isinstance(transaction.operation, lance.LanceOperation.Restore):
            return own
        if not isinstance(transaction.operation, lance.LanceOperation.Append):
            return None
        files = chain.from_iterable(fragment.files for fragment in transaction.operation.fragments)
        return own + [f"data/{file.path}" for file in files if not file.base_id]

    def _blobs_beside(self, dataset: Any, paths: Iterable[str]) -> Iterator[str]:
        """Yield the files of large blobs, which are in folders next to the files of their rows."""
        if not any(is_blob(field) for field in dataset.schema):
            return
        for path in paths:
            folder = path.removesuffix(".lance")
            if path.startswith("data/"):
                with suppress(FileNotFoundError):
                    yield from [f"{folder}/{name}" for name in Folder.at(self._place / folder).names()]

    def of_fragment(self, fragment: Any) -> dict[str, FileDigest]:
        """Return the digests of the row files of a fragment that was just written."""
        paths = [f"data/{file.path}" for file in fragment.files if not file.base_id]
        return {path: digest for path in paths if (digest := self.digest_of(path)) is not None}

    def digest_of(self, path: str) -> FileDigest | None:
        """Return the present size and digest of a file, or None if it is gone."""
        digest, size = xxhash.xxh3_128(), 0
        try:
            for piece in self._pieces(path):
                digest.update(piece)
                size += len(piece)
        except FileNotFoundError:
            return None
        return FileDigest(0, size, digest.hexdigest())

    def compare(self, files: Mapping[str, FileDigest], findings: Findings) -> int:
        """Compare files with their digests, note faults, and return the number of unchanged files.

        Missing files are left out.
        """

        def compared(item: tuple[str, FileDigest]) -> bool:
            path, written = item
            now = None
            with findings.noting():
                now = self.digest_of(path)
            if now is None or now.digest == written.digest:
                return now is not None
            differs = "another digest than"
            if now.size != written.size:
                differs = f"{now.size:,} bytes, not {written.size:,} as"
            reason = f"a file of {self._name} has {differs} version {written.version} has written"
            findings.fault(ReadError(reason, path=str(self._place / path), hint=RESTORE))
            return False

        with ThreadPoolExecutor(_AT_ONCE, "chunkmill-digests") as threads:
            return sum(threads.map(compared, files.items()))

    def check(self, paths: Collection[str] | None) -> None:
        """Raise ``ReadError`` if files differ from their digests; None: all manifests and transactions."""
        findings = Findings()
        digests = self.all(findings)
        chosen = (path for path in digests if (path.startswith(OF_A_VERSION) if paths is None else path in paths))
        self.compare({path: digests[path] for path in chosen}, findings)
        findings.verification().checked()

    def check_version(self, version: int) -> None:
        """Raise ``ReadError`` if a version's manifest differs from its digest."""
        findings, path = Findings(), self.manifest_of(version)
        digest = self.of_version(version, path)
        if digest is not None:
            self.compare({path: digest}, findings)
        findings.verification().checked()

    def of_version(self, version: int, path: str) -> FileDigest | None:
        """Return the digest of a file that a version added, if any. Raises ``ReadError``."""
        findings = Findings()
        digests = self.all(findings, lambda name: name == f"{version:020}.json" or "-" in name)
        findings.verification().checked()
        return digests.get(path)

    def all(self, findings: Findings, wanted: Callable[[str], bool] = lambda _: True) -> dict[str, FileDigest]:
        """Return all digests, or those in digest files with ``wanted`` names.

        A damaged digest file is noted and left out. If a cleanup joins files meanwhile, all are read again.
        """
        for _ in range(_MOST_TRIES):
            names, own = list(filter(wanted, self._names())), Findings()
            digests, gone = self._read_all(names, own)
            if not gone:
                break
        findings.add(own.verification())
        return digests

    def join(self) -> None:
        """Join all digest files, and drop digests of removed files. Damaged digest files stay; drafts are deleted."""
        findings = Findings()
        with suppress(FileNotFoundError):
            self._folder.delete([name for name in self._folder.names() if name.endswith(OPEN_SUFFIX)])
        names = self._names()
        joined, _ = self._read_all(names, findings)
        damaged = {os.path.basename(error.path or "") for error in findings.verification().faults}  # noqa: PTH119 (a URL, too)
        present = self._present(joined)
        whole = [name for name in names if name not in damaged]
        if not whole or (len(whole) == 1 and len(present) == len(joined)):
            return
        newest = max(int(name[:20]) for name in whole)
        existing = set(self.manifests().values())
        authors = {number: name for number, name in self.authors(whole).items() if number in existing}
        self._write(f"{newest:020}-{secrets.token_hex(4)}.json", {path: joined[path] for path in present}, authors)
        self._folder.delete(whole)

    def authors(self, names: Sequence[str] | None = None) -> dict[int, str]:
        """Return the authors of versions, by number, from the undamaged digest files."""
        authors: dict[int, str] = {}
        for name in self._names() if names is None else names:
            with suppress(ReadError):
                body = self._body(name)
                authors |= {} if body is None else body["authors"]
        return authors

    def manifest_of(self, version: int) -> str:
        """Return the path of a version's manifest. Its name counts up in old tables, and down in others."""
        names = (f"_versions/{NUMBERS - version:020}.manifest", f"_versions/{version}.manifest")
        return next((name for name in names if Folder.at(self._place).exists(name)), names[0])

    def manifests(self) -> dict[str, int]:
        """Return the manifests of the existing versions, each with the version's number."""
        names = (name for name in Folder.at(self._place / "_versions").names() if name.endswith(".manifest"))
        return {f"_versions/{name}": number for name in names if (number := _number_of(name)) is not None}

    def _present(self, paths: Iterable[str]) -> list[str]:
        """Return the paths that exist, by one listing per folder."""
        of_folder: dict[str, list[str]] = {}
        for path in paths:
            of_folder.setdefault(path.rpartition("/")[0], []).append(path)
        present: list[str] = []
        for folder, own in of_folder.items():
            with suppress(FileNotFoundError):
                names = {f"{folder}/{name}" for name in Folder.at(self._place / folder).names()}
                present += [path for path in own if path in names]
        return present

    def _names(self) -> list[str]:
        try:
            return sorted(name for name in self._folder.names() if _NAME.fullmatch(name))
        except FileNotFoundError:
            return []

    def _read_all(self, names: Sequence[str], findings: Findings) -> tuple[dict[str, FileDigest], bool]:
        """Return the digests in undamaged digest files, and whether one is gone; note the faults of damaged ones."""

        def read(name: str) -> dict[str, FileDigest] | None:
            try:
                return self._read(name)
            except ReadError as error:
                if error.transient:
                    raise
                findings.fault(error)
                return {}

        digests: dict[str, FileDigest] = {}
        gone = False
        with ThreadPoolExecutor(_AT_ONCE, "chunkmill-digests") as threads:
            for entries in threads.map(read, names):
                digests.update(entries or {})
                gone = gone or entries is None
        return digests, gone

    def _read(self, name: str) -> dict[str, FileDigest] | None:
        """Return the digests in a file, or None if it is gone."""
        body = self._body(name)
        return None if body is None else body["files"]

    def _body(self, name: str) -> dict[str, Any] | None:
        """Return the content of a digest file, or None if it is gone. Raises ``ReadError``."""
        try:
            digest, _, body = self._folder.get(name).partition(b"\n")
            if digest.decode("ascii", "replace") != xxhash.xxh3_128_hexdigest(body):
                raise ValueError("its own digest differs")
            data: dict[str, Any] = json.loads(body)
            data["files"] = {path: FileDigest(*values) for path, values in data["files"].items()}
            data["authors"] = {int(number): str(name) for number, name in data.get("authors", {}).items()}
            return data
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ReadError(
                f"the digests of version {int(name[:20])} cannot be read: {error}",
                path=self._folder.place(name),
                hint=f"{RESTORE} Without this file, the data added by the version has no digests.",
            ) from error

    def _write(self, name: str, files: Mapping[str, FileDigest], authors: Mapping[int, str]) -> None:
        body = json.dumps({"files": files, "authors": authors}).encode()
        data = xxhash.xxh3_128_hexdigest(body).encode() + b"\n" + body
        self._folder.make()
        # Lance does not sync either: if power fails, the digested files may be lost, too.
        self._folder.replace(name, data, "lance.digests", durable=False)

    def _pieces(self, path: str) -> Iterator[bytes]:
        place = self._place / path
        if isinstance(place, Path):
            with place.open("rb", buffering=0) as file:
                while piece := file.read(_PIECE_BYTES):
                    yield piece
            return
        folder = Folder.at(self._place)
        for offset in range(0, folder.size(path), _PIECE_BYTES):  # a store refuses to read beyond the end
            yield folder.get_range(path, offset, _PIECE_BYTES)


def files_of_versions(dataset: Any, first: int) -> dict[int, set[str]]:
    """Return the paths of each version's files from ``first`` on, except files outside the table's folder."""
    files = dataset.tracked_files(min_version=first).read_all()
    columns = (files[name].to_pylist() for name in ("version", "base_uri", "path"))
    rows = list(zip(*columns, strict=True))
    home = next((base for _, base, path in rows if path.startswith("_versions/")), None)
    named: dict[int, set[str]] = {}
    for version, base, path in rows:
        if base == home:
            named.setdefault(version, set()).add(path)
    return named


def known_digests(written: Iterable[str]) -> dict[str, FileDigest]:
    """Return the digests that tasks computed for their files, from their reports on fragments."""
    groups = (json.loads(text).get("digests", {}) for text in written)
    return {path: FileDigest(*digest) for group in groups for path, digest in group.items()}


def verified(place: LancePlace, digests: FileDigests, opened: Callable[[int], Any]) -> TableVerification:
    """Read all files of a table, and compare them with the digests that commits wrote.

    The files of the newest version must exist, and files of earlier versions must be unchanged. Files of the newest
    version without a digest, such as those of other programs, are read row by row. ``opened`` opens a version.
    """
    findings = Findings()
    try:
        with place.reading():
            manifests = digests.manifests()
            written = digests.all(findings)
            findings.count(chunks=(same := digests.compare(written, findings)), rows=0, digests=same)
    except FileNotFoundError:
        manifests = {}
    if not manifests:
        hint = "Restore its files, or delete the entry."
        findings.fault(SourceMissingError("there is no Lance table here", path=place.place, hint=hint))
        return TableVerification.of(findings)
    newest = max(manifests, key=manifests.__getitem__)
    undigested = {path for path in manifests if path not in written}
    wrong = {error.path for error in findings.verification().faults}
    if str(place.location / newest) not in wrong:  # a damaged one has undefined effects in Lance
        try:
            with place.reading():
                dataset = opened(manifests[newest])
        except ReadError as error:  # more informative than the faults of its files
            if error.transient:
                raise
            return TableVerification(faults=(error,), version=manifests[newest])
        with findings.noting():
            undigested |= _verify_newest(place, dataset, written, wrong, findings)
    return TableVerification.of(findings, manifests[newest], undigested)


def _verify_newest(
    place: LancePlace, dataset: Any, digests: Mapping[str, FileDigest], wrong: Set[str | None], findings: Findings
) -> set[str]:
    """Verify that all files of the newest version exist, read files without digests, and return their paths."""
    with place.reading():
        version = int(dataset.version)
        named = files_of_versions(dataset, version)[version]
        folders = {f"_indices/{part.uuid}" for index in dataset.describe_indices() for part in index.segments}
        folders |= {path.removesuffix(".lance") for path in named}  # folders of large blobs
        beside = [path for path in digests if path.rpartition("/")[0] in folders]
        faults = missing_files(place.location, place.title, dataset, beside)
    for error in faults:
        if error.path not in wrong:
            findings.fault(error)
    undigested = {path for path in named if path not in digests and not path.startswith("_transactions/")}
    if not faults and not wrong:
        with place.reading():
            place.check_deletions(dataset)
            findings.count(chunks=len(undigested), rows=int(dataset.count_rows()))
            _read_rows(dataset, undigested)
    return undigested


def files_of(fragment: Any) -> list[str]:
    """Return the paths of a fragment's files, except those outside the table's folder."""
    files = [f"data/{file.path}" for file in fragment.files if not file.base_id]
    deletions = fragment.deletion_file
    return files if deletions is None or deletions.base_id else [*files, deletions.path(fragment.id)]


def _read_rows(dataset: Any, files: Set[str]) -> None:
    """Read all rows of fragments that have some of these files."""
    fragments = [fragment for fragment in dataset.get_fragments() if not files.isdisjoint(files_of(fragment.metadata))]
    if fragments:
        deque(dataset.scanner(fragments=fragments, blob_handling="all_binary").to_batches(), 0)


def _number_of(name: str) -> int | None:
    digits = name.removesuffix(".manifest")
    if not digits.isdecimal():
        return None
    return NUMBERS - int(digits) if len(digits) == 20 else int(digits)
