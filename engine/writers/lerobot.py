"""``write_lerobot``: streams of recordings become a LeRobot dataset of version 3.0, with counts of all frames."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import ReadError, ReadWarning, UnsupportedError, UsageError, WriteError, writing
from ..execution import (
    Body,
    Progress,
    RunOptions,
    Stage,
    Staging,
    Task,
    TaskRun,
    executor_name,
    progress_shown,
    raise_failure,
    sync_folder,
    warn_of,
)
from ..faults import reach
from ..locations import located, without_folders
from ..rrd import digest_of
from ..statistics import PixelCounts, Statistics, pixel_step, sampled_frames
from ..storage import ObjectUrl
from ..stream import LazyChunkStream
from ..units import counted
from .lerobot_episodes import SAMPLE, AlignedEpisode, EpisodeAccount, RecordingSamples, episode_rows, label_rows
from .lerobot_files import (
    ACCOUNT,
    WrittenEpisode,
    WrittenVideo,
    account_from_json,
    account_to_json,
    read_statistics,
    read_written,
    statistics_bytes,
    write_dataset,
    write_part,
)
from .lerobot_page import ExportReport
from .lerobot_sources import ExportedRecording, ExportedStore, Recordings, recordings_of
from .lerobot_spec import IMAGE, VIDEO, ExportSpec, FeatureSpec, GivenEpisodes, Labels, WholeRecording
from .lerobot_video import EncodedVideo, VideoPart, pixels, png_of, rgb_picture, write_images


def write_lerobot(
    recordings: Recordings,
    destination: str | os.PathLike[str],
    spec: ExportSpec | Mapping[str, Any] | str | os.PathLike[str],
    *,
    executor: str | None = None,
    master: str | None = None,
    append: bool = False,
    on_error: str = "raise",
    progress: Progress = None,
    episodes: Any = None,
) -> ExportReport:
    """Write recordings as a LeRobot dataset of version 3.0; each recording is a task.

    Guarantee: the dataset appears completely, in one step, or not at all. An existing dataset is unchanged until then.
    Episodes are in the order of the recordings, and by time within each. Each stream runs once.

    Parameters
    ----------
    recordings
        A mapping from recording names to streams; a store of recordings, a dataset or a view; or several of these.
    destination
        A local folder that is new or empty. With ``append``, it is a dataset that this function wrote with the same
        specification. Recordings in it with the same name and digest are skipped. Recordings with the same name but
        another digest, other labels, or no digest are replaced. Recordings of a store have a digest of their layers;
        recordings that were deleted from the store are removed. If there is nothing to do, nothing is written.
    spec
        The specification, a mapping for :meth:`ExportSpec.of`, or a file for :meth:`ExportSpec.load`.
    on_error
        ``"skip"`` skips a recording that is damaged or does not fit the specification; the report has the error as the
        reason. A later run tries such a recording again if it was replaced.
    episodes
        A table with one episode per row, such as the events of ``dataset.find``: an Arrow table, a table of a catalog,
        or a DataFrame. Its columns are ``rerun_segment_id`` (or ``segment_id``), the name of the recording; ``start``
        and ``end``, times on the timeline of the features, both inclusive, or null for the ends of the recording; and
        optionally ``task``. Recordings without a row are skipped. The specification must then not define episodes.

    Raises
    ------
    UsageError
        The specification is invalid, or does not fit a recording.
    ReadError
        A recording is damaged, or has values that do not fit the features.
    WriteError, NoSpaceError
        The destination cannot be written, or already exists.
    """
    if on_error not in ("raise", "skip"):
        raise UsageError(f"on_error must be raise or skip, not {on_error!r}")
    chosen = ExportSpec.given(spec)
    place = located(destination)
    if isinstance(place, ObjectUrl):
        raise UnsupportedError(
            "a LeRobot dataset can only be written to a local folder", path=str(place), hint="Copy it then."
        )
    given, stores = recordings_of(recordings)
    if episodes is not None:
        if chosen.episodes != WholeRecording():
            raise UsageError("episodes are given twice", hint="Remove them from the specification, or give no table.")
        chosen = replace(chosen, episodes=GivenEpisodes())
        given = _with_labels(given, episode_rows(episodes))
    if isinstance(chosen.episodes, Labels):
        given = _with_labels(given, label_rows(chosen.episodes))
    before = _Before.of(place, chosen, append=append)
    if episodes is not None:
        given = [each for each in given if each.labels or each.name in before.origins]
    todo, skipped = before.todo(given)
    removed = before.gone(stores)
    with progress_shown(progress, str(destination)) as listener, Staging.beside(place) as staging:
        options = RunOptions(executor_name(executor), master, progress=listener)
        moved = {e.name: (e.digest, e.origin) for e in given if e.name in skipped and e.origin is not None}
        is_moved = any(before.origins[name] != origin for name, origin in moved.items())
        if append and not todo and not removed and not is_moved and before.origins:
            return _report(place, before.kept, (), skipped)
        tasks = [Task(number, each.name, 0) for number, each in enumerate(todo)]
        body = _ExportBody(chosen, tuple(todo), skips=on_error == "skip")
        ran = Stage(body, tasks, staging, destination=str(place)).run(options)
        raise_failure(ran.notes)
        warn_of(ran.notes, set())
        outcomes = [outcome for outcome in ran.outcomes() if not isinstance(outcome, Exception)]
        away = {*removed, *(each.name for each in todo)}
        kept = [episode for episode in before.kept if episode.account.recording not in away]
        others = [a for a in before.accounts if a["recording"] not in away]
        written, accounts, shapes, codecs = _written(
            staging.local, todo, outcomes, chosen, before.shapes if kept else {}, skips=body.skips
        )
        everything = [*kept, *written]
        if not everything:
            reasons = "; ".join(f"{a.recording}: {a.reason}" for a in accounts[:3]) or "no recording is left"
            hint = (
                "All recordings of the dataset were deleted: remove the dataset."
                if removed
                else "Check the tolerances and the minimum."
            )
            raise UsageError(f"there is no episode to write: {reasons}", hint=hint)
        whole = chosen.with_shapes(before.shapes | shapes)
        facts = [*others, *(account_to_json(a, _digest(a, todo)) for a in accounts)]
        origins = {name: origin for name, origin in before.origins.items() if name not in away}
        origins |= moved | {each.name: (each.digest, each.origin) for each in todo}
        with writing(str(place)):
            new = staging.local / "dataset"
            new.mkdir()
            write_dataset(new, whole, everything, facts, before.codecs | codecs, origins)
            reach("export.draft")
            _publish(new, place, before.account)
        reach("staging.remove")
    return _report(place, everything, tuple(accounts), skipped, removed)


def write_recording(
    stream: LazyChunkStream,
    destination: str | os.PathLike[str],
    spec: ExportSpec | Mapping[str, Any] | str | os.PathLike[str],
    recording_id: str,
    **options: Any,
) -> ExportReport:
    """Write the recording of one stream, as :func:`write_lerobot` does with the same options."""
    return write_lerobot({recording_id: stream}, destination, spec, **options)


def _with_labels(given: Sequence[ExportedRecording], rows: Sequence[Mapping[str, Any]]) -> list[ExportedRecording]:
    """Return recordings with their rows of a label table, and with digests that also depend on these rows.

    A row has the name of a recording, or its file name or stem. Warns of rows that match no recording.

    Raises ``UsageError`` if the file name in a row is that of several recordings.
    """
    of: dict[str, list[Mapping[str, Any]]] = {each.name: [] for each in given}
    files: dict[str, set[str]] = {}
    for name in of:
        for short in (Path(name).name, Path(name).stem):
            files.setdefault(short, set()).add(name)
    lost = set()
    for row in rows:
        named = row["recording"]
        names = [named] if named in of else sorted(files.get(named, ()))
        if len(names) > 1:
            raise UsageError(
                f"the label {named} matches {', '.join(names[:5])}", hint="Give the full names of recordings."
            )
        if names:
            of[names[0]].append(row)
        else:
            lost.add(named)
    if lost:
        shown = ", ".join(sorted(lost)[:5])
        warnings.warn(f"no recording for {counted(len(lost), 'label')}, such as {shown}", ReadWarning, stacklevel=3)
    return [replace(each, labels=tuple(of[each.name]), digest=_labelled(each.digest, of[each.name])) for each in given]


def _labelled(digest: str | None, rows: Sequence[Mapping[str, Any]]) -> str | None:
    texts = [repr(sorted(row.items())) for row in rows]
    return None if digest is None else digest_of("\n".join([digest, *texts]).encode()).hex()


def _report(
    place: Path,
    episodes: Sequence[WrittenEpisode],
    accounts: Sequence[EpisodeAccount],
    skipped: Sequence[str],
    removed: Sequence[str] = (),
) -> ExportReport:
    frames = sum(episode.length for episode in episodes)
    return ExportReport(str(place), tuple(accounts), len(episodes), frames, tuple(skipped), tuple(removed))


def _digest(account: EpisodeAccount, given: Sequence[ExportedRecording]) -> str | None:
    return next(each.digest for each in given if each.name == account.recording)


@dataclass(frozen=True, slots=True)
class _Before:
    """The content of the destination: episodes, accounts, and the shapes of features.

    ``origins`` are the digests and the stores of its recordings, including those without an episode.
    """

    kept: list[WrittenEpisode]
    accounts: list[dict[str, Any]]
    shapes: dict[str, tuple[int, ...]]
    codecs: dict[str, str]
    origins: dict[str, tuple[str | None, str | None]]
    account: bytes | None = None
    """The file of the account, as it was read."""

    @classmethod
    def of(cls, place: Path, spec: ExportSpec, *, append: bool) -> _Before:
        if not place.exists() or (place.is_dir() and not any(place.iterdir())):
            return cls([], [], {}, {}, {})
        if not append:
            raise WriteError("is there already", path=str(place), hint="Give a new folder, or append to it.")
        hint = "append needs a dataset that chunkmill wrote with the same specification; write another one."
        try:
            account = (place / ACCOUNT).read_bytes()
            facts = json.loads(account)
            info = json.loads((place / "meta/info.json").read_text(encoding="utf-8"))
            if facts["spec"] != spec.with_shapes(_shapes(info)).digest:
                raise WriteError("was written with another specification", path=str(place), hint=hint)
            origins = {each["name"]: (each["digest"], each["origin"]) for each in facts["recordings"]}
            return cls(*read_written(place, spec), _shapes(info), _codecs(info), origins, account)
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, WriteError):
                raise
            raise ReadError(f"cannot be appended to: {error!r}", path=str(place), hint=hint) from error

    def todo(self, given: Sequence[ExportedRecording]) -> tuple[list[ExportedRecording], list[str]]:
        """Return the recordings to export, and the names of those that are already in the dataset.

        Raises ``UsageError`` if the dataset has a recording of the same name from another file or store.
        """
        for each in given:
            digest, origin = self.origins.get(each.name, (None, None))
            if origin is not None and each.origin is not None and origin != each.origin and digest != each.digest:
                raise UsageError(
                    f"the dataset has a recording {each.name} from another file or store",
                    hint="Give the folder that contains both, so that their names differ, or rename one.",
                )
        skipped = {each.name for each in given if each.digest and self.origins.get(each.name, ("",))[0] == each.digest}
        return [each for each in given if each.name not in skipped], sorted(skipped)

    def gone(self, stores: Sequence[ExportedStore]) -> list[str]:
        """Return the names of recordings that came from one of the stores, and are no longer in it."""
        present = {store.origin: store.present for store in stores}
        return [name for name, (_, at) in self.origins.items() if at in present and name not in present[at]]


def _shapes(info: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(feature["shape"]) for name, feature in info["features"].items()}


def _codecs(info: Mapping[str, Any]) -> dict[str, str]:
    return {name: f["info"]["video.codec"] for name, f in info["features"].items() if f["dtype"] == VIDEO}


@dataclass(frozen=True, slots=True)
class _ExportBody(Body):
    """One recording: its episodes become files in the staging folder."""

    spec: ExportSpec
    recordings: tuple[ExportedRecording, ...]
    skips: bool = False

    def label(self, index: int) -> str:
        return self.recordings[index].name

    def run(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        yield from ()
        recording = self.recordings[task.index]
        try:
            return self._written(task, recording)
        except (ReadError, UsageError) as error:
            if not self.skips:
                raise
            lost = account_to_json(_lost(recording, error), None)
        return _put(task, [], {"accounts": [lost], "shapes": {}, "videos": [], "codecs": {}})

    def _written(self, task: TaskRun, recording: ExportedRecording) -> dict[str, Any]:
        source = RecordingSamples(recording.name, recording.opened(), self.spec, recording.labels)
        pictures = {f.name: _pictures(source, f, self.spec.fps) for f in self.spec.features if f.is_picture}
        shapes = {name: picture.shape for name, picture in pictures.items()} | source.shapes
        spec = self.spec.with_shapes(shapes)
        folder, accounts, figures, videos = Path(task.location), [], [], []
        for number, episode in enumerate(source.episodes()):
            if not episode.length:
                accounts.append(account_to_json(episode.account, None))
                continue
            stem = f"{task.name}-{number:05d}"
            with writing(str(folder)):
                parts = _write_videos(folder, stem, episode, spec, pictures)
                images = {f.name: _images_of(pictures[f.name], episode) for f in spec.features if f.dtype == IMAGE}
                write_part(folder / f"{stem}.parquet", spec, episode, images)
                reach("export.part", folder / f"{stem}.parquet")
            figures.append(_statistics(episode, pictures, parts))
            videos.append({name: [file, part.lead] for name, (file, part) in parts.items()})
            reencoded = sum(part.reencoded for _, part in parts.values())
            accounts.append(account_to_json(replace(episode.account, reencoded=reencoded), None))
        codecs = {f.name: pictures[f.name].codec for f in spec.features if f.dtype == VIDEO}
        return _put(task, figures, {"accounts": accounts, "shapes": shapes, "videos": videos, "codecs": codecs})


def _lost(recording: ExportedRecording, error: Exception) -> EpisodeAccount:
    """Return the account of a recording skipped for an error; it names no folders, as datasets are published."""
    reason = without_folders(str(error), getattr(error, "path", None))
    return EpisodeAccount(recording.name, 0, 0, "", 0, 0, 0, {}, reason)


def _put(task: TaskRun, figures: Sequence[Mapping[str, Statistics]], facts: Mapping[str, Any]) -> dict[str, Any]:
    task.put(f"{task.name}.npz", statistics_bytes(figures))
    task.put(f"{task.name}.json", json.dumps(facts).encode())
    return {"chunks": 0, "bytes": 0, "name": task.name}


def _pictures(source: RecordingSamples, feature: FeatureSpec, fps: int) -> _Pictures | EncodedVideo:
    places = source.pictures[feature.name]
    return EncodedVideo(source, feature, places, fps) if places.component == SAMPLE else _Pictures(source, feature, fps)


def _images_of(picture: _Pictures | EncodedVideo, episode: AlignedEpisode) -> Iterator[bytes]:
    assert isinstance(picture, _Pictures)
    return picture.of(episode.pictures[picture.name])


def _write_videos(
    folder: Path, stem: str, episode: AlignedEpisode, spec: ExportSpec, pictures: Mapping[str, _Pictures | EncodedVideo]
) -> dict[str, tuple[str, VideoPart]]:
    """Write the videos of an episode; return the names of their files."""
    samples = {}
    for place, feature in enumerate(spec.features):
        if feature.dtype == VIDEO:
            name = f"{stem}-{place}.mp4"
            samples[feature.name] = name, pictures[feature.name].write(folder / name, episode.pictures[feature.name])
    return samples


class _Pictures:
    """The images of one feature of a recording: all of one size, as JPEG or PNG."""

    codec = "h264"

    def __init__(self, source: RecordingSamples, feature: FeatureSpec, fps: int) -> None:
        places = source.pictures[feature.name]
        self._source, self._places, self.name, self._fps = source, places, feature.name, fps
        self._shape = feature.shape
        if len(places.times):
            self.get(0)

    @property
    def shape(self) -> tuple[int, ...]:
        """Height, width and channels."""
        return self._shape or (0, 0, 3)

    def get(self, index: int) -> bytes:
        """Return an image. Raises ``ReadError`` if it has another size."""
        raw, given = self._source.picture(self._places, index)
        data = raw if given is None else png_of(raw, given, self._source.name)
        data, height, width = rgb_picture(data, self._source.name)
        shape = (height, width, 3)
        if self._shape is None:
            self._shape = shape
        if shape[:2] != self._shape[:2]:
            raise ReadError(
                f"features.{self.name}: an image is {width} x {height}, not {self._shape[1]} x {self._shape[0]}",
                path=self._source.name,
                hint="All images of a dataset must have the same size.",
            )
        return data

    def of(self, indexes: Sequence[int] | Any) -> Iterator[bytes]:
        """Yield the images of frames."""
        last, data = -1, b""
        for index in np.asarray(indexes).tolist():
            if index != last:
                last, data = index, self.get(index)
            yield data

    def write(self, path: Path, indexes: Any) -> VideoPart:
        """Write the images of frames as a video."""
        counts = PixelCounts()
        write_images(path, self._counted(indexes, counts), self.shape, self._fps)
        return VideoPart(0, len(indexes), counts.statistics())

    def _counted(self, indexes: Any, counts: PixelCounts) -> Iterator[npt.NDArray[np.uint8]]:
        """Yield the pixels of frames; count those that LeRobot samples."""
        sampled, step = set(sampled_frames(len(indexes))), pixel_step(*self.shape[:2])
        for place, data in enumerate(self.of(indexes)):
            image = pixels(data, self._source.name)
            if place in sampled:
                counts.add(image[::step, ::step])
            yield image

    def statistics(self, indexes: Any) -> Statistics:
        """Return the statistics of the pixels that LeRobot samples."""
        counts, step = PixelCounts(), pixel_step(*self.shape[:2])
        for data in self.of(np.asarray(indexes)[sampled_frames(len(indexes))]):
            counts.add(pixels(data, self._source.name)[::step, ::step])
        return counts.statistics()


def _statistics(
    episode: AlignedEpisode,
    pictures: Mapping[str, _Pictures | EncodedVideo],
    parts: Mapping[str, tuple[str, VideoPart]],
) -> dict[str, Statistics]:
    statistics = {n: Statistics.of(rows) for n, rows in episode.numbers.items() if rows.dtype != object}  # no texts
    for name, indexes in episode.pictures.items():
        picture = pictures[name]
        if name in parts:
            statistics[name] = parts[name][1].statistics
        else:
            assert isinstance(picture, _Pictures)
            statistics[name] = picture.statistics(indexes)
    return statistics


def _written(
    folder: Path,
    given: Sequence[ExportedRecording],
    outcomes: Sequence[Mapping[str, Any]],
    spec: ExportSpec,
    shapes_before: Mapping[str, tuple[int, ...]],
    *,
    skips: bool,
) -> tuple[list[WrittenEpisode], list[EpisodeAccount], dict[str, tuple[int, ...]], dict[str, str]]:
    """Return the output of the tasks. Raises ``ReadError`` if recordings differ in the shape of a feature."""
    names = spec.measured
    episodes, accounts = [], []
    shapes = dict(shapes_before)
    codecs: dict[str, str] = {}
    for recording, outcome in zip(given, outcomes, strict=True):
        facts = json.loads((folder / f"{outcome['name']}.json").read_bytes())
        count = sum(account["reason"] is None for account in facts["accounts"])
        figures = iter(read_statistics((folder / f"{outcome['name']}.npz").read_bytes(), count, names))
        videos = iter(facts["videos"])
        other = next((n for n, s in facts["shapes"].items() if tuple(s) != shapes.get(n, tuple(s))), None)
        if other is not None:
            shape = facts["shapes"][other]
            error = ReadError(
                f"features.{other}: the shape is {shape}, but {list(shapes[other])} in an earlier recording",
                path=recording.name,
                hint="Remove the feature, or give a selector that makes the shapes equal.",
            )
            if not skips:
                raise error
            accounts.append(_lost(recording, error))
            continue
        shapes |= {name: tuple(shape) for name, shape in facts["shapes"].items()}
        codecs |= facts["codecs"]
        for number, given_account in enumerate(facts["accounts"]):
            account = account_from_json(given_account)
            accounts.append(account)
            if account.reason is None:
                part = folder / f"{outcome['name']}-{number:05d}.parquet"
                rows = (0, account.written)
                films = {
                    name: WrittenVideo(folder / file, lead / spec.fps, (lead + account.written) / spec.fps)
                    for name, (file, lead) in next(videos).items()
                }
                facts_of = (account.written, part, rows, next(figures), recording.digest, films)
                episodes.append(WrittenEpisode(account, account.task, *facts_of))
    return episodes, accounts, shapes, codecs


_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


def _publish(new: Path, place: Path, account: bytes | None) -> None:
    """Move ``new`` to ``place`` in one step. An existing dataset, which has ``account``, changes places with it.

    Raises ``WriteError`` if another export has written there meanwhile; its dataset stays.
    """
    changed = WriteError("was meanwhile written by another export", path=str(place), hint="Run it again.")
    if account is None:
        try:
            new.replace(place)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise changed from None
            raise
    else:
        if (place / ACCOUNT).read_bytes() != account:
            raise changed
        _exchange(new, place)
        if (new / ACCOUNT).read_bytes() != account:  # another export was published in between
            _exchange(new, place)
            raise changed
    reach("export.publish")
    sync_folder(place.parent)


def _exchange(one: Path, other: Path) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    names = (os.fsencode(one), os.fsencode(other))
    if library.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE):
        code = ctypes.get_errno()
        raise WriteError(
            f"this file system cannot exchange two folders in one step: {os.strerror(code)}",
            path=str(other),
            hint="Write a new dataset instead of appending.",
        )
