"""HDF5 in the registry of formats: the options, and what ``inspect`` shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ...engine.errors import UsageError
from ..parquet import ParquetRecording
from ..recording_file import Episode, RecordingFile, option

if TYPE_CHECKING:
    from ...engine.stream import LazyChunkStream
    from ..inspection import FileReport

_SHARED = {o.name: o for o in ParquetRecording.options()}


def _shared(name: str) -> Any:
    """The Parquet option of this name, which has the same meaning."""
    o = _SHARED[name]
    return option(o.default, o.help, flag=o.flag, metavar=o.metavar, choices=o.choices, parse=o.parse, switch=o.switch)


@dataclass(frozen=True)
class Hdf5Recording(RecordingFile):
    """An HDF5 file; its options are those of :meth:`Hdf5Reader.stream`.

    ``recordings`` is a pattern for groups; each matching group is a recording.
    """

    index_columns: tuple[Any, ...] = _shared("index_columns")
    entity_path_prefix: str | None = _shared("entity_path_prefix")
    use_structs: bool = _shared("use_structs")
    root_group: str | None = option(None, "HDF5: the group to read.", flag="--root-group", metavar="PATH")
    ignore_datasets: tuple[str, ...] = option(
        (), "HDF5: a dataset or group to leave out; repeatable.", flag="--ignore-dataset", metavar="PATH"
    )
    recordings: str | None = option(
        None,
        "HDF5: a pattern such as '/data/demo_*'; matching groups are recordings.",
        flag="--recordings",
        metavar="PATTERN",
    )

    images: tuple[str, ...] = option(
        (), "HDF5: a dataset of images, or a pattern; repeatable.", flag="--images", metavar="PATH"
    )
    preset: str | None = option(
        None,
        "HDF5: options for the files of a known data set.",
        flag="--preset",
        choices=("aloha", "robomimic", "droid"),
    )

    episode_option: ClassVar[str] = "root_group"

    def stream(self) -> LazyChunkStream:
        """Return the chunks of the file or the group; see :class:`Hdf5Reader`."""
        from .reader import Hdf5Reader

        if len(self.index_columns) > 1:
            raise UsageError("an HDF5 file can have only one index column", path=str(self.path))
        return Hdf5Reader(self.path).stream(
            root_group=self.root_group,
            entity_path_prefix=self.entity_path_prefix,
            index_column=self.index_columns[0] if self.index_columns else None,
            ignore_datasets=self.ignore_datasets or None,
            use_structs=self.use_structs,
            images=self.images or None,
            preset=self.preset,
        )

    def episodes(self) -> Sequence[Episode]:
        """Return the groups that match the pattern ``recordings``; none without a pattern. Raises ``ReadError``."""
        from .reader import Hdf5Reader, preset_of

        pattern = self.recordings or preset_of(self.preset).recordings
        if pattern is None:
            return ()
        demos = Hdf5Reader(self.path).recordings(pattern)
        return [Episode(demo.root_group, demo.recording_id) for demo in demos]

    def report(self) -> FileReport:
        """Return groups and datasets with their types."""
        from ..inspection import ColumnReport, FileReport
        from .reader import Hdf5Reader

        reader = Hdf5Reader(self.path)
        datasets = reader.datasets()
        columns = tuple(
            ColumnReport(d.path, f"{d.dtype}[{', '.join(map(str, d.shape))}]" if d.shape else d.dtype) for d in datasets
        )
        return FileReport(str(self.path), self.size(), (), {"datasets": len(datasets)}, columns)
