"""The hidden datasets of blueprints and assets, and ``Recording``, a segment as one object."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal, Self

import pyarrow as pa

from ..chunk import Chunk
from ..errors import NotFoundError, UsageError, WriteError
from ..query import QuerySemantics
from ..store import LazyStore
from .entries import EntryId, EntryKind, EntryRow, hidden_row
from .entry_log import Entry, changing
from .segments import SegmentProperties

if TYPE_CHECKING:
    from .registration import RegistrationHandle, UnregistrationHandle
    from .row_view import RecordingView, ViewContentsLike

_OPT_IN: Final = "OptIn"
_MODES: Final[Mapping[str, str]] = {"opt_out": "OptOut", "opt_in": _OPT_IN}
_MODE: Final = "property:asset:mode"
_SEGMENTS: Final = "property:asset:segments"
_TRIES: Final = 10


class HiddenDatasets(Entry):
    """The methods of a dataset for its blueprints and assets."""

    __fspath__: Callable[[], str]
    segment_ids: Callable[[], list[str]]
    register: Callable[..., RegistrationHandle]
    unregister: Callable[..., UnregistrationHandle]

    # --- blueprints

    @changing
    def register_blueprint(
        self, uri: str | os.PathLike[str], set_default: bool = True, *, segment_table: bool = False
    ) -> None:
        """Register the blueprint in an ``.rbl`` file, as the default of the segments unless ``set_default=False``.

        With ``segment_table`` it becomes the default of the table of segments instead.

        Raises
        ------
        LookupError
            This is a dataset of blueprints, or the file does not exist (a ``NotFoundError``).
        ValueError
            The file has no blueprint.
        """
        hidden = self.blueprint_dataset()
        if hidden is None:
            raise NotFoundError("a blueprint dataset is not configured for this dataset")
        registered = hidden.register(uri).wait().segment_ids
        if set_default and segment_table:
            self.set_default_segment_table_blueprint(registered[0])
        elif set_default:
            self.set_default_blueprint(registered[0])

    def blueprint_dataset(self) -> Self | None:
        """The hidden dataset of this dataset's blueprints; None if this is a hidden dataset itself."""
        hidden = self._row().blueprints
        return None if hidden is None else self._other(hidden)

    def blueprints(self) -> list[str]:
        """The ids of all blueprints: first those ingested with recordings, then those registered."""
        hidden = self.blueprint_dataset()
        return [] if hidden is None else hidden.segment_ids()

    def default_blueprint(self) -> str | None:
        """The default blueprint of the segments, or None."""
        return self._row().default_blueprint

    @changing
    def set_default_blueprint(self, blueprint_name: str | None) -> None:
        """Set the default blueprint of the segments; None clears it.

        Raises
        ------
        NotFoundError
            There is no such blueprint. It is a ``LookupError``.
        """
        self._check_blueprint(blueprint_name)
        self._log.change(self.id, lambda row: replace(row, default_blueprint=blueprint_name))

    def default_segment_table_blueprint(self) -> str | None:
        """The default blueprint of the table of segments, or None."""
        return self._row().table_blueprint

    @changing
    def set_default_segment_table_blueprint(self, blueprint_name: str | None) -> None:
        """Set the default blueprint of the table of segments; None clears it.

        Raises
        ------
        NotFoundError
            There is no such blueprint. It is a ``LookupError``.
        """
        self._check_blueprint(blueprint_name)
        self._log.change(self.id, lambda row: replace(row, table_blueprint=blueprint_name))

    def _check_blueprint(self, name: str | None) -> None:
        if name is not None and name not in self.blueprints():
            raise NotFoundError(
                f"there is no blueprint {name!r} in dataset '{self.name}'", hint="blueprints() lists them."
            )

    # --- assets

    def asset_dataset(self) -> Self | None:
        """The hidden dataset of this dataset's assets; None before the first asset."""
        hidden = self._row().assets
        return None if hidden is None else self._other(hidden)

    @changing
    def make_asset_dataset(self) -> Self:
        """Return the hidden dataset of the assets, and create it if missing. It is deleted with this dataset."""
        hidden = self._log.transact(self._with_assets).row(self.id).assets
        assert hidden is not None
        return self._other(hidden)

    def _with_assets(self, entries: Mapping[EntryId, EntryRow]) -> Mapping[EntryId, EntryRow]:
        row = entries.get(self.id)
        if row is None or row.assets is not None:
            return entries
        if row.kind is not EntryKind.DATASET:
            raise UsageError(f"'{row.name}' is a hidden dataset, and has no assets of its own")
        hidden = hidden_row(EntryKind.ASSET_DATASET, row.id, time.time_ns())
        return {**entries, hidden.id: hidden, row.id: replace(row, assets=hidden.id)}

    def assets(self) -> list[str]:
        """The ids of all assets."""
        hidden = self.asset_dataset()
        return [] if hidden is None else hidden.segment_ids()

    @changing
    def register_asset(
        self,
        uri: str | os.PathLike[str],
        *,
        mode: Literal["opt_out", "opt_in"] = "opt_out",
        segments: Sequence[str] | None = (),
    ) -> str:
        """Register a static recording that is shown with segments, and return the id of the asset.

        Parameters
        ----------
        uri
            The file. Each recording in it is an asset; the id of the first one is returned.
        mode
            ``opt_out``: the asset is shown with all segments except ``segments``; ``opt_in``: only with ``segments``.

        Raises
        ------
        ValueError
            The recording has values on timelines or is larger than 300 MiB, or the dataset has 12 assets already.
        """
        if mode not in _MODES:
            raise UsageError(f"mode must be 'opt_out' or 'opt_in', not {mode!r}")
        hidden = self.make_asset_dataset()
        registered = hidden.register(uri).wait().segment_ids
        properties, texts = SegmentProperties(hidden), pa.list_(pa.string())
        columns = {_MODE: pa.array([[_MODES[mode]]], texts), _SEGMENTS: pa.array([list(segments or ())], texts)}
        for asset in registered:
            if properties.replace(asset, properties.of(asset), pa.record_batch(columns)) is None:
                raise WriteError(f"other processes keep changing asset '{asset}'", hint="Try again.", transient=True)
        return registered[0]

    @changing
    def unregister_asset(self, segment_id: str) -> None:
        """Remove an asset; ignore an unknown id. Its properties stay, like those of removed segments."""
        hidden = self.asset_dataset()
        if hidden is not None:
            hidden.unregister(segments_to_drop=[segment_id])

    def add_segments_to_asset(self, asset_segment_id: str, segments: Sequence[str]) -> None:
        """Show an asset with more segments: ``opt_in`` adds them to the list, ``opt_out`` removes them from it.

        Raises
        ------
        NotFoundError
            There is no such asset. It is a ``LookupError``.
        """
        self._change_asset(asset_segment_id, segments, adds=True)

    def remove_segments_from_asset(self, asset_segment_id: str, segments: Sequence[str]) -> None:
        """Stop showing an asset with these segments; the inverse of :meth:`add_segments_to_asset`."""
        self._change_asset(asset_segment_id, segments, adds=False)

    @changing
    def _change_asset(self, asset: str, segments: Sequence[str], *, adds: bool) -> None:
        if isinstance(segments, str):
            raise TypeError("segments: expected a list of ids, got a str")
        hidden = self.asset_dataset()
        if hidden is None or asset not in hidden.segment_ids():
            raise NotFoundError(f"there is no asset {asset!r} in dataset '{self.name}'", hint="assets() lists them.")
        properties = SegmentProperties(hidden)
        for _ in range(_TRIES):
            stored = properties.of(asset)
            named = _texts(stored.row, _SEGMENTS)
            is_listed = adds == (_texts(stored.row, _MODE)[:1] == [_OPT_IN])
            wanted = dict.fromkeys([*named, *segments] if is_listed else (id_ for id_ in named if id_ not in segments))
            if list(wanted) == named or properties.replace(asset, stored, _with_segments(stored.row, list(wanted))):
                return
        raise WriteError(f"other processes keep changing asset '{asset}'", hint="Try again.", transient=True)

    @changing
    def forget_in_assets(self, segment_ids: Collection[str]) -> list[str]:
        """Remove segments from the present and earlier lists of all assets; return the ids of the changed assets."""
        hidden = self.asset_dataset()
        changed: list[str] = []
        if hidden is None:
            return changed
        properties = SegmentProperties(hidden)
        for asset in hidden.segment_ids():
            for _ in range(_TRIES):
                stored = properties.of(asset)
                named = _texts(stored.row, _SEGMENTS)
                left = [id_ for id_ in named if id_ not in segment_ids]
                if left == named or properties.replace(asset, stored, _with_segments(stored.row, left)):
                    break
            else:
                raise WriteError(f"other processes keep changing asset '{asset}'", hint="Try again.", transient=True)
            changed += [asset] if left != named else []
            if stored.version:
                properties.squash(asset)
        return changed

    def assets_for_segment(self, segment_id: str | None) -> list[str]:
        """The ids of a segment's assets; the segment need not exist. None: the assets that all segments have."""
        hidden = self.asset_dataset()
        if hidden is None:
            return []
        properties = SegmentProperties(hidden)
        return [asset for asset in hidden.segment_ids() if _goes_with(properties.of(asset).row, segment_id)]

    @changing
    def set_hidden(
        self,
        *,
        blueprints: EntryId | None,
        assets: EntryId | None,
        default_blueprint: str | None,
        table_blueprint: str | None,
    ) -> None:
        """Set the hidden datasets of this dataset, and the default blueprints of its segments and of their table.

        None keeps the present hidden dataset. The hidden dataset of assets is created if missing.

        Raises
        ------
        NotFoundError
            A blueprint does not exist, and was not set before.
        """
        row = self._row()
        valid_names = {row.default_blueprint, row.table_blueprint, None}
        if blueprints is not None and blueprints != row.blueprints:
            valid_names |= {*self._other(blueprints).segment_ids(), *self.blueprints()}
        for name in {default_blueprint, table_blueprint} - valid_names:
            self._check_blueprint(name)

        def changed(row: EntryRow) -> EntryRow:
            return replace(
                row,
                blueprints=blueprints or row.blueprints,
                assets=assets or row.assets,
                default_blueprint=default_blueprint,
                table_blueprint=table_blueprint,
            )

        makes_assets = assets is None and row.kind is EntryKind.DATASET
        self._log.change(self.id, changed, self._with_assets if makes_assets else dict)

    def _other(self, id: EntryId) -> Self:  # noqa: A002 (it is one)
        """Return the dataset of an id. Raises ``NotFoundError``."""
        return type(self)(self._catalog, self._log, self._log.read().dataset(id))


def _goes_with(row: pa.RecordBatch | None, segment_id: str | None) -> bool:
    """Return whether an asset with these properties belongs to a segment, or for None to all segments."""
    mode, named = _texts(row, _MODE), _texts(row, _SEGMENTS)
    if mode[:1] == [_OPT_IN]:
        return segment_id is not None and segment_id in named
    return not named if segment_id is None else segment_id not in named


def _with_segments(row: pa.RecordBatch | None, segments: list[str]) -> pa.RecordBatch:
    """The properties of an asset with another list of segments."""
    texts = pa.list_(pa.string())
    columns = {} if row is None else {name: row[name] for name in row.schema.names}
    columns.setdefault(_MODE, pa.array([[_MODES["opt_out"]]], texts))
    return pa.record_batch({**columns, _SEGMENTS: pa.array([segments], texts)})


def _texts(row: pa.RecordBatch | None, name: str) -> list[str]:
    """The texts of a property; empty if it has another type."""
    if row is None or name not in row.schema.names or row[name].type != pa.list_(pa.string()):
        return []
    return [text for text in row[name][0].as_py() or () if text is not None]


class Recording(LazyStore):
    """The chunks of all layers of a segment, and the ids of its recording. Each chunk is read on first use."""

    def __init__(self, chunks: Iterable[Chunk], *, name: str, application_id: str, recording_id: str) -> None:
        super().__init__(chunks, name=name)
        self._application_id = application_id
        self._recording_id = recording_id

    def application_id(self) -> str:
        """The id of the application that made the recording."""
        return self._application_id

    def recording_id(self) -> str:
        """The id of the recording, which is the id of the segment."""
        return self._recording_id

    def view(
        self,
        *,
        index: str | None,
        contents: ViewContentsLike,
        include_semantically_empty_columns: bool = False,
        include_tombstone_columns: bool = False,
    ) -> RecordingView:
        """The rows of the entities in ``contents`` by an index; see :meth:`reader`. You can add filters.

        ``contents`` are an expression such as ``/imu/**``, or a mapping of expressions to components.

        Raises
        ------
        TypeError
            ``contents`` has another type.
        """
        from .row_view import RecordingView, view_query

        query = view_query(
            index,
            contents,
            QuerySemantics.of(),
            names_segments=False,
            include_semantically_empty_columns=include_semantically_empty_columns,
            include_tombstone_columns=include_tombstone_columns,
        )
        return RecordingView(self.segment(self._recording_id), query)
