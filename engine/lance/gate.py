"""The gate that each Lance table passes when it is registered, opened and read: its files must be in allowed places.

A table's manifest may name folders outside the table (``base_paths``, in shallow clones and branches), a folder may
have links, and the rows of a blob column may name files by URL. The table's author controls all of these, so a foreign
table could expose any file that this process can read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import ForeignFileError, UsageError
from ..locations import Location, is_below, located, true_place
from ..storage import is_url
from .rows import is_blob

_WITH_FILES: Final = ("data", "_deletions", "_indices", "_refs")
_BRANCHES: Final = "_refs/branches"
_STORED: Final = 2
"""The largest kind of blobs that are in the table: in the row's file, or in a file beside it. The next is a URL."""
_SETTLED_NS: Final = 1_000_000_000
"""Folder times are coarse: after this time, a later change is certain to change the folder's time."""
_MOST_KEPT: Final = 65_536
_ROWS_OF_A_BATCH: Final = 1 << 17
_LONGEST_SHOWN: Final = 200
_HINT: Final = (
    "Copy the table with all its files (`deep_clone` of Lance does), or allow that folder: "
    "CatalogClient(…, allow=[FOLDER]), connect(…, allow=[FOLDER])."
)

FolderState = tuple[str, int, int]
"""A folder, its inode, and its last change time."""


class _Links(NamedTuple):
    """The links in a table's folders, and the state of the folders when they were listed."""

    links: tuple[str, ...]
    folders: tuple[FolderState, ...]

    @classmethod
    def of(cls, root: str) -> _Links:
        links: list[str] = []
        folders: list[FolderState] = []
        todo = [root]
        while todo:
            here = todo.pop()
            try:
                status = os.stat(here)  # noqa: PTH116 (there may be thousands of strings)
                folders.append((here, status.st_ino, status.st_ctime_ns))
                with os.scandir(here) as entries:
                    for entry in entries:
                        if entry.is_symlink():
                            links.append(entry.path)
                        elif here == root:
                            todo += [entry.path] if entry.name in _WITH_FILES else []
                        elif entry.is_dir():
                            todo.append(entry.path)
            except (FileNotFoundError, NotADirectoryError):
                continue  # it was removed meanwhile
        return cls(tuple(links), tuple(folders))

    def is_as_it_was(self) -> bool:
        """Return whether no folder has changed since."""
        try:
            statuses = [os.stat(folder) for folder, _, _ in self.folders]  # noqa: PTH116 (as above)
        except OSError:
            return False
        return [(status.st_ino, status.st_ctime_ns) for status in statuses] == [entry[1:] for entry in self.folders]


@dataclass(frozen=True)
class Gate:
    """The places outside a table's own folder in which it may have files. The object can be pickled.

    It caches which folders and files of tables were checked. A check reads the change times of a few folders, and takes
    0.06 ms.

    Parameters
    ----------
    folders
        Paths or URLs of folders; None: anywhere. Links in a table may not lead out of these folders.
    closed
        Folders inside these that are not allowed.
    blobs
        Folders with files that rows of a blob column may name. By default such rows are refused.
    has_views_of_others
        Whether the source of a view may be anywhere. Otherwise it must be in these folders or next to the view.
    """

    folders: tuple[str, ...] | None = ()
    closed: tuple[str, ...] = ()
    blobs: tuple[str, ...] = ()
    has_views_of_others: bool = True
    _links: dict[str, _Links] = field(default_factory=dict, init=False, repr=False, compare=False)
    _blobs: set[tuple[object, ...]] = field(default_factory=set, init=False, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Gate, (self.folders, self.closed, self.blobs, self.has_views_of_others)

    @classmethod
    def of(cls, allow: Collection[str] | Gate, *folders: str) -> Gate:
        """Return the gate of a user who allows ``allow`` in addition to the user's own folders."""
        if isinstance(allow, Gate):
            return allow
        if isinstance(allow, str):
            raise UsageError(f"allow must be a list of folders, not {allow!r}", hint=f"Write allow=[{allow!r}].")
        allowed = tuple(str(located(folder)) for folder in allow)
        return cls((*folders, *allowed), blobs=allowed)

    def check_source(self, source: Location, view: Location, name: str) -> None:
        """Raise ``ForeignFileError`` if a view's source is a table that is not allowed."""
        real = true_place(source)
        if not self.has_views_of_others and not self._is_allowed(real, true_place(view.parent)):
            raise _refusal(view, name, "its source is a table outside the allowed folders", str(source))

    def admit(self, place: Location, name: str, dataset: Any) -> None:
        """Raise ``ForeignFileError`` unless all files of an opened version are in allowed places.

        :meth:`check_blobs` checks the files that blobs name.
        """
        real = os.path.realpath(place) if isinstance(place, Path) else true_place(place)
        own = self._own(place, name, real)
        for base in dataset.base_paths().values():
            folder = _place_of(base.path)
            if folder is None or not self._is_allowed(folder, own):
                raise _refusal(place, name, "its manifest names a folder outside the table", base.path)
        if isinstance(place, Path):
            self._check_links(place, name, real, own, int(dataset.version))

    def check_names(self, place: Location, name: str, fragments: Iterable[Any]) -> None:
        """Raise ``ForeignFileError`` if the name of a data file leads out of the table."""
        for fragment in fragments:
            for file in fragment.files:
                if not _is_name(file._path):  # noqa: SLF001 (``path`` creates an object per file, 40 times as slow)
                    raise _refusal(place, name, "its manifest names a file outside the table", file._path)  # noqa: SLF001

    def check_blobs(
        self, place: Location, name: str, dataset: Any, columns: Sequence[str], fragments: Sequence[int] | None = None
    ) -> None:
        """Raise ``ForeignFileError`` if rows of blob columns name files that are not allowed.

        The rows of a file, including deleted ones, are checked once. ``fragments`` are numbers of fragments; None: all.
        """
        if not columns:
            return
        own = true_place(place)
        ids = {field.name(): field.id() for field in dataset.lance_schema.fields()}
        wanted = tuple(ids.get(column, -1) for column in columns)
        lance_fragments = dataset.get_fragments() if fragments is None else map(dataset.get_fragment, fragments)
        unknown = {
            fragment.fragment_id: _state_of_files(own, fragment.metadata, wanted)
            for fragment in lance_fragments
            if fragment is not None
        }
        todo = [id_ for id_, state in unknown.items() if state is None or state not in self._blobs]
        if not todo:
            return
        bases = {id_: base.path for id_, base in dataset.base_paths().items()}
        for uri, base_id in _outer_blobs(dataset, columns, todo):
            real = _place_of(uri if is_url(uri) or base_id not in bases else f"{bases[base_id].rstrip('/')}/{uri}")
            if real is None or not any(is_below(real, folder) for folder in self._blob_folders):
                raise _refusal(place, name, "a blob in a row is a file outside the table", uri)
        if len(self._blobs) > _MOST_KEPT:
            self._blobs.clear()
        self._blobs.update(state for id_ in todo if (state := unknown[id_]) is not None)

    @cached_property
    def _roots(self) -> tuple[str, ...]:
        return tuple(map(true_place, self.folders or ()))

    @cached_property
    def _written_roots(self) -> tuple[str, ...]:
        """The folders as given, and with links resolved."""
        return (*map(os.path.normpath, self.folders or ()), *self._roots)

    @cached_property
    def _closed(self) -> tuple[str, ...]:
        return tuple(map(true_place, self.closed))

    @cached_property
    def _blob_folders(self) -> tuple[str, ...]:
        return tuple(map(true_place, self.blobs))

    def _own(self, place: Location, name: str, real: str) -> str:
        """Return the real folder of the table; for a branch, the folder of the whole table."""
        if self._written_roots:
            written = os.path.normpath(place)
            is_inside = any(is_below(written, root) for root in self._written_roots)
            if is_inside and not self._is_allowed(real, None):
                raise _refusal(place, name, "its folder is a link that leads elsewhere", real)
        root, _, branch = real.rpartition("/tree/")
        return root if root and Path(root, _BRANCHES, f"{branch}.json").is_file() else real

    def _is_allowed(self, real: str, own: str | None) -> bool:
        if own is not None and is_below(real, own):
            return True
        if any(is_below(real, folder) for folder in self._closed):
            return False
        return self.folders is None or any(is_below(real, root) for root in self._roots)

    def _check_links(self, place: Path, name: str, root: str, own: str, version: int) -> None:
        """Raise ``ForeignFileError`` if a link in a table's folder leads to a place that is not allowed."""
        begun = time.time_ns()
        entry = self._links.get(root)
        if entry is None or not entry.is_as_it_was():
            entry = _Links.of(root)
            if all(changed + _SETTLED_NS < begun for _, _, changed in entry.folders):
                if len(self._links) > _MOST_KEPT:
                    self._links.clear()
                self._links[root] = entry
        manifests = (f"{root}/_versions/{2**64 - 1 - version:020}.manifest", f"{root}/_versions/{version}.manifest")
        for link in (*entry.links, *filter(os.path.islink, manifests)):
            real = os.path.realpath(link)
            if not self._is_allowed(real, own):
                raise _refusal(place, name, "a link in its folder leads out of the folder", os.path.relpath(link, root))


def outer_columns(schema: pa.Schema) -> list[str]:
    """Return the columns of a Lance schema whose rows may name files: blobs, and types that contain blobs."""
    return [field.name for field in schema if _may_be_outer(field)]


def _may_be_outer(field: pa.Field) -> bool:
    if is_blob(field):
        return True
    type_ = field.type
    return any(_may_be_outer(type_.field(number)) for number in range(type_.num_fields))


def _outer_blobs(dataset: Any, columns: Sequence[str], fragments: Sequence[int]) -> Iterator[tuple[str, int]]:
    """Yield the URLs of blobs outside the table, each once per batch, with the number of its base folder."""
    batches = dataset.scanner(
        columns=list(columns),
        fragments=[dataset.get_fragment(id_) for id_ in fragments],
        include_deleted_rows=True,
        with_row_id=True,
        batch_size=_ROWS_OF_A_BATCH,
        blob_handling="blobs_descriptions",
    ).to_batches()
    for batch in batches:
        for column in columns:
            for blobs in _descriptions(batch.column(column)):
                kinds = blobs.field(blobs.type.get_field_index("kind"))
                outer = blobs.filter(pc.and_(blobs.is_valid(), pc.greater(kinds, _STORED)))
                if len(outer):
                    uris, ids = (outer.field(outer.type.get_field_index(name)) for name in ("blob_uri", "blob_id"))
                    yield from set(zip(uris.to_pylist(), ids.to_pylist(), strict=True))


def _descriptions(array: pa.Array) -> Iterator[pa.StructArray]:
    """Yield the arrays of blob descriptions in an array. Older descriptions name no files, and are left out."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if isinstance(array, pa.StructArray):
        names = {field.name for field in array.type}
        if {"kind", "blob_id", "blob_uri"} <= names:
            yield array
        else:
            for child in array.flatten():
                yield from _descriptions(child)
    elif isinstance(array, (pa.ListArray, pa.LargeListArray, pa.FixedSizeListArray)):
        yield from _descriptions(array.flatten())


def _state_of_files(own: str, fragment: Any, wanted: tuple[int, ...]) -> tuple[object, ...] | None:
    """Return a state that identifies a fragment's files, or None if a file is outside the table or missing."""
    parts: list[object] = [own, *wanted]
    for file in fragment.files:
        if file.base_id is not None:
            return None
        state: tuple[int, ...] = (file.file_size_bytes or 0,)
        if not is_url(own):
            try:
                status = os.stat(f"{own}/data/{file.path}")  # noqa: PTH116 (there may be thousands of strings)
            except OSError:
                return None
            state = (status.st_ino, status.st_size, status.st_ctime_ns)
        parts += [file.path, *file.fields, *file.column_indices, *state]
    return tuple(parts)


def _place_of(path: str) -> str | None:
    """Return the place of a path in a table with links resolved, or None if the path is ambiguous."""
    decoded = unquote(unquote(path))
    if ".." in decoded.replace("\\", "/").split("/") or any(ord(letter) < 32 for letter in decoded):
        return None
    if not is_url(path):
        return true_place(path) if path.startswith("/") else None
    if "?" in path or "#" in path or ("%" in path and not path.lower().startswith("file:")):
        return None  # Lance and others interpret it differently
    try:
        return true_place(path)
    except UsageError:
        return None


def _is_name(name: str) -> bool:
    """Return whether ``name`` is a file name, and not a path."""
    return bool(name) and not name.startswith(".") and not any(part in name for part in ("/", "\\", "%2"))


def _refusal(place: Location, name: str, what: str, which: str) -> ForeignFileError:
    shown = which if len(which) <= _LONGEST_SHOWN else f"{which[:_LONGEST_SHOWN]}…"
    return ForeignFileError(f"{name} is not opened: {what}, {shown!r}", path=str(place), hint=_HINT)
