"""Tables that somebody has forged give nothing from outside: over the server, and by a client that allows no folder."""

from __future__ import annotations

import collections
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import lance
import pyarrow as pa
import pytest
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.catalog.server import (
    Access,
    CatalogService,
    ServiceOptions,
    secret_of,
    secret_place,
    start,
    token,
)
from chunkmill.engine.catalog.uploads import UploadParts, Uploads
from chunkmill.engine.errors import AlreadyExistsError, ForeignFileError, UsageError, WriteError
from chunkmill.engine.lance import LanceTable, gate
from chunkmill.engine.tables import connect
from lance import DatasetBasePath, FragmentMetadata, LanceDataset, LanceOperation
from lance.blob import Blob, blob_array, blob_field

pytest.importorskip("grpc")
pytest.importorskip("uvicorn")

SECRET: Final = "what nobody may read"
SCHEMA: Final = pa.schema([pa.field("text", pa.string())])
GOOD: Final = "what all may read"
OPTIONS: Final[dict[str, Any]] = {"data_storage_version": "2.2", "enable_stable_row_ids": True}
OUTER: Final = {**OPTIONS, "allow_external_blob_outside_bases": True}


class World(NamedTuple):
    """A lake, and beside it a file and a table that are none of its clients' business."""

    lake: Path
    outside: Path

    @property
    def file(self) -> Path:
        return self.outside / "secret.txt"

    @property
    def rows(self) -> Path:
        return self.outside / "rows.lance"

    @property
    def key(self) -> Path:
        return self.lake / ".serve" / "secret"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("forged")
    made = World(folder / "lake", folder / "outside")
    for path in (made.outside, made.lake / "uploads", made.key.parent):
        path.mkdir(parents=True)
    made.file.write_text(SECRET)
    made.key.write_text(SECRET)
    rows = lance.write_dataset(pa.table({"text": [SECRET] * 3}), str(made.rows), **OPTIONS)
    rows.create_scalar_index("text", "BTREE")
    CatalogClient(made.lake).create_dataset("some")
    return made


@pytest.fixture(scope="module")
def rerun(world: World) -> Iterator[Any]:
    """Rerun's client of the lake's server."""
    catalog = pytest.importorskip("rerun.catalog")
    service = CatalogService(world.lake)
    with start(service, access=Access()) as server:
        yield catalog.CatalogClient(f"rerun+http://127.0.0.1:{server.port}")


class Forged(NamedTuple):
    """A forged table, and what its maker does with it after it was registered."""

    place: str
    later: Callable[[], object] | None = None


# --- forms


def good(place: Path) -> Path:
    lance.write_dataset(pa.table({"text": [GOOD]}), str(place), **OPTIONS)
    return place


def blobs(place: Path, *values: Any, **options: Any) -> Path:
    table = pa.table({"text": blob_array(list(values))}, schema=pa.schema([blob_field("text")]))
    lance.write_dataset(table, str(place), **{**OUTER, **options})
    return place


def based(place: Path, base: str, rows: Path, *, is_root: bool = True) -> Path:
    """A table with a fragment whose file is below another folder."""
    bases = [DatasetBasePath(base, name="base", is_dataset_root=is_root, id=1)]
    if place.exists():
        lance.dataset(str(place)).add_bases(bases)
    else:
        lance.write_dataset(SCHEMA.empty_table(), str(place), initial_bases=bases, **OPTIONS)
    fragment = fragment_of(rows)
    fragment["files"][0]["base_id"] = 1
    return appended(place, fragment)


def fragment_of(rows: Path) -> Any:
    return json.loads(json.dumps(lance.dataset(str(rows)).get_fragments()[0].metadata.to_json()))


def appended(place: Path, fragment: Any) -> Path:
    operation = LanceOperation.Append([FragmentMetadata.from_json(json.dumps(fragment))])
    LanceDataset.commit(str(place), operation, read_version=lance.dataset(str(place)).version)
    return place


def copied(world: World, place: Path) -> Path:
    """A table that is a copy of the one outside, to put links into."""
    shutil.copytree(world.rows, place)
    return place


def linked(path: Path, target: Path) -> None:
    """A link in the place of a file or a folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.symlink_to(target, target_is_directory=target.is_dir())


def file_below(folder: Path, pattern: str) -> Path:
    return next(path for path in sorted(folder.rglob(pattern)) if path.is_file())


def blob_of_a_file(world: World, place: Path) -> Forged:
    return Forged(str(blobs(place, Blob.from_uri(world.file.as_uri()))))


def blob_of_the_key(world: World, place: Path) -> Forged:
    return Forged(str(blobs(place, Blob.from_uri(world.key.as_uri()))))


def blob_encoded(world: World, place: Path) -> Forged:
    uri = f"file://{world.lake}/%2e%2e/outside/%73ecret.txt"
    return Forged(str(blobs(place, Blob.from_uri(uri))))


def blob_with_dots(world: World, place: Path) -> Forged:
    return Forged(str(blobs(place, Blob.from_uri(f"file://{world.lake}/uploads/../../outside/secret.txt"))))


def blob_of_a_part(world: World, place: Path) -> Forged:
    uri = Blob.from_uri(world.file.as_uri(), position=0, size=len(SECRET))
    return Forged(str(blobs(place, b"x", None, uri, b"y" * 200_000)))


def blob_of_another_scheme(world: World, place: Path) -> Forged:
    return Forged(str(blobs(place, Blob.from_uri(f"file-object-store://{world.file}"))))


def blob_in_a_struct(world: World, place: Path) -> Forged:
    inner = blob_array([b"x", Blob.from_uri(world.file.as_uri())])
    lance.write_dataset(pa.table({"text": pa.StructArray.from_arrays([inner], ["inner"])}), str(place), **OUTER)
    return Forged(str(place))


def blob_in_a_list(world: World, place: Path) -> Forged:
    inner = blob_array([b"x", Blob.from_uri(world.file.as_uri())])
    lance.write_dataset(pa.table({"text": pa.ListArray.from_arrays(pa.array([0, 2]), inner)}), str(place), **OUTER)
    return Forged(str(place))


def blob_in_a_base(world: World, place: Path) -> Forged:
    base = DatasetBasePath(str(world.outside), name="base", is_dataset_root=False, id=1)
    return Forged(str(blobs(place, Blob.from_uri(world.file.as_uri()), initial_bases=[base])))


def blob_of_a_row_that_is_back(world: World, place: Path) -> Forged:
    blobs(place, b"x", Blob.from_uri(world.file.as_uri()))
    lance.dataset(str(place)).delete("text IS NOT NULL")
    return Forged(str(place), lambda: lance.dataset(str(place), version=1).restore())


def blob_that_comes_later(world: World, place: Path) -> Forged:
    blobs(place, b"x")
    return Forged(str(place), lambda: blobs(place, Blob.from_uri(world.file.as_uri()), mode="append"))


def shallow_clone(world: World, place: Path) -> Forged:
    rows = lance.dataset(str(world.rows))
    rows.shallow_clone(str(place), rows.version)
    return Forged(str(place))


def base_path(world: World, place: Path) -> Forged:
    return Forged(str(based(place, str(world.rows), world.rows)))


def base_of_files(world: World, place: Path) -> Forged:
    return Forged(str(based(place, str(world.rows / "data"), world.rows, is_root=False)))


def base_by_a_url(world: World, place: Path) -> Forged:
    return Forged(str(based(place, world.rows.as_uri(), world.rows)))


def base_with_dots(world: World, place: Path) -> Forged:
    return Forged(str(based(place, f"{place}/../../../outside/rows.lance", world.rows)))


def base_encoded(world: World, place: Path) -> Forged:
    return Forged(str(based(place, f"file://{world.lake}/%2e%2e/outside/rows.lance", world.rows)))


def base_of_another_scheme(world: World, place: Path) -> Forged:
    return Forged(str(based(place, f"file-object-store://{world.rows}", world.rows)))


def base_of_the_lakes_own(world: World, place: Path) -> Forged:
    own = world.lake / "datasets" / f"{place.stem}" / "search" / "rows.lance"
    shutil.copytree(world.rows, own)
    return Forged(str(based(place, str(own), own)))


def base_behind_a_link(world: World, place: Path) -> Forged:
    link = place.with_name(f"{place.name}.link")
    link.symlink_to(world.outside, target_is_directory=True)
    return Forged(str(based(place, str(link / "rows.lance"), world.rows)))


def link_to_a_table(world: World, place: Path) -> Forged:
    place.symlink_to(world.rows, target_is_directory=True)
    return Forged(str(place))


def link_to_data(world: World, place: Path) -> Forged:
    linked(copied(world, place) / "data", world.rows / "data")
    return Forged(str(place))


def link_to_a_file(world: World, place: Path) -> Forged:
    file = file_below(copied(world, place), "data/*.lance")
    linked(file, world.rows / file.relative_to(place))
    return Forged(str(place))


def link_to_versions(world: World, place: Path) -> Forged:
    linked(copied(world, place) / "_versions", world.rows / "_versions")
    return Forged(str(place))


def link_to_a_version(world: World, place: Path) -> Forged:
    file = file_below(copied(world, place), "_versions/*.manifest")
    linked(file, world.rows / file.relative_to(place))
    return Forged(str(place))


def link_to_a_blob(world: World, place: Path) -> Forged:
    size = 3_000_000
    large = world.outside / "large.txt"
    large.write_text(SECRET.ljust(size))
    blobs(place, b"x" * size)
    linked(file_below(place, "*.blob"), large)
    return Forged(str(place))


def index_file(world: World, place: Path) -> Forged:
    file = file_below(copied(world, place), "_indices/*/*.lance")
    linked(file, world.rows / file.relative_to(place))
    return Forged(str(place))


def folder_of_indexes(world: World, place: Path) -> Forged:
    linked(copied(world, place) / "_indices", world.rows / "_indices")
    return Forged(str(place))


def swapped_for_a_clone(world: World, place: Path) -> Forged:
    def swap() -> None:
        shutil.rmtree(place)
        shallow_clone(world, place)

    return Forged(str(good(place)), swap)


def swapped_for_a_link(world: World, place: Path) -> Forged:
    return Forged(str(good(place)), lambda: linked(place, world.rows))


def swapped_data(world: World, place: Path) -> Forged:
    good(place)

    def swap() -> None:
        linked(place / "data", world.rows / "data")
        linked(place / "_versions", world.rows / "_versions")

    return Forged(str(place), swap)


def newer_version(world: World, place: Path) -> Forged:
    return Forged(str(good(place)), lambda: based(place, str(world.rows), world.rows))


def branch(world: World, place: Path) -> Forged:
    """The folder of a branch, whose table is not the one around it."""
    good(place)
    lance.dataset(str(place)).create_branch("other")
    shutil.rmtree(place / "tree" / "other")
    shallow_clone(world, place / "tree" / "other")
    return Forged(str(place / "tree" / "other"))


FORMS: Final = (
    blob_of_a_file,
    blob_of_the_key,
    blob_encoded,
    blob_with_dots,
    blob_of_a_part,
    blob_of_another_scheme,
    blob_in_a_struct,
    blob_in_a_list,
    blob_in_a_base,
    blob_of_a_row_that_is_back,
    blob_that_comes_later,
    shallow_clone,
    base_path,
    base_of_files,
    base_by_a_url,
    base_with_dots,
    base_encoded,
    base_of_another_scheme,
    base_of_the_lakes_own,
    base_behind_a_link,
    link_to_a_table,
    link_to_data,
    link_to_a_file,
    link_to_versions,
    link_to_a_version,
    link_to_a_blob,
    index_file,
    folder_of_indexes,
    swapped_for_a_clone,
    swapped_for_a_link,
    swapped_data,
    newer_version,
    branch,
)


def reads_of(entry: Any) -> Iterator[Callable[[], object]]:
    """What a client can read of a table."""
    yield lambda: entry.to_arrow_reader().read_all().to_pylist()
    yield lambda: entry.reader().to_pylist()
    yield lambda: entry.arrow_schema()


def seen_by(client: Any, name: str, forged: Forged) -> tuple[str, list[Exception]]:
    """What a client sees of a forged table, and what it is refused with."""
    seen: list[object] = []
    refused: list[Exception] = []

    def tried(read: Callable[[], object]) -> None:
        try:
            seen.append(read())
        except Exception as error:  # noqa: BLE001 (looked at below)
            refused.append(error)

    tried(lambda: client.register_table(name, Path(forged.place).as_uri()))
    if forged.later is not None:
        assert not refused, "it is still as it should be"
        for read in reads_of(client.get_table(name)):
            seen_before = len(seen)
            tried(read)
            assert len(seen) > seen_before, refused
        seen.clear()
        forged.later()
    if forged.later is not None or not refused:
        for read in reads_of(client.get_table(name)):
            tried(read)
    return f"{seen}{refused}", refused


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_lance_itself_gives_it(world: World, form: Callable[[World, Path], Forged]) -> None:
    place = world.lake / "uploads" / f"plain-{form.__name__}.lance"
    forged = form(world, place)
    if forged.later is not None:
        forged.later()
    found = lance.dataset(forged.place).scanner(blob_handling="all_binary").to_table()
    assert SECRET in str(found.column("text").to_pylist())


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_a_client_that_allows_nothing_sees_nothing(world: World, form: Callable[[World, Path], Forged]) -> None:
    name = f"local_{form.__name__}"
    forged = form(world, world.lake / "uploads" / f"{name}.lance")
    seen, refused = seen_by(CatalogClient(world.lake), name, forged)
    assert SECRET not in seen
    assert any(isinstance(error, ForeignFileError) for error in refused), seen


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_a_client_of_the_server_sees_nothing(world: World, rerun: Any, form: Callable[[World, Path], Forged]) -> None:
    name = f"served_{form.__name__}"
    forged = form(world, world.lake / "uploads" / f"{name}.lance")
    seen, refused = seen_by(rerun, name, forged)
    assert SECRET not in seen
    assert any("does not open" in str(error) or "is not opened" in str(error) for error in refused), seen


# --- what is behind a table: versions, views, names of files


@pytest.mark.parametrize(
    "name",
    [
        "../../../outside/rows.lance/data/{}",
        "%2e%2e/%2e%2e/outside/rows.lance/data/{}",
        "/{}",
        "..",
        ".serve-secret",
        "",
    ],
)
def test_names_of_files_lead_nowhere(world: World, tmp_path: Path, name: str) -> None:
    fragment = fragment_of(world.rows)
    fragment["files"][0]["path"] = name.format(fragment["files"][0]["path"])
    lance.write_dataset(SCHEMA.empty_table(), str(tmp_path / "x.lance"), **OPTIONS)
    forged = appended(tmp_path / "x.lance", fragment)
    with pytest.raises(ForeignFileError, match="a file outside"):
        CatalogClient(tmp_path / "lake").register_table("names", forged)


def test_an_earlier_version_with_a_tag_is_forged(world: World, tmp_path: Path) -> None:
    place = good(tmp_path / "x.lance")
    lance.write_dataset(pa.table({"text": [GOOD]}), str(place), mode="append")
    lance.dataset(str(world.rows)).shallow_clone(str(tmp_path / "clone.lance"), 1)
    manifest = file_below(tmp_path / "clone.lance", "*.manifest")
    shutil.copy(manifest, place / "_versions" / manifest.name)
    lance.dataset(str(place)).tags.create("forged", 1)
    assert SECRET in str(lance.dataset(str(place), version="forged").to_table())
    table = CatalogClient(tmp_path / "lake").register_table("x", place)
    assert table.reader().count() == 2
    with pytest.raises(ForeignFileError, match="names a folder outside"):
        LanceTable(place, "x").at(1)
    with pytest.raises(ForeignFileError, match="names a folder outside"):
        LanceTable(place, "x").snapshot(1)


def test_a_view_over_a_forged_table_is_not_refreshed(world: World, tmp_path: Path) -> None:
    tables = connect(str(tmp_path))
    source = tables.create_table("source", pa.table({"text": [GOOD]}))
    view = tables.create_materialized_view("view", source.search(None).select(["text"]))
    view.refresh()
    assert view.to_arrow().column("text").to_pylist() == [GOOD]
    based(tmp_path / "source.lance", str(world.rows), world.rows)
    with pytest.raises(ForeignFileError, match="names a folder outside"):
        view.refresh()
    assert SECRET not in str(view.to_arrow())


def test_a_view_of_a_catalog_has_no_source_outside(world: World, tmp_path: Path) -> None:
    forged = connect(str(tmp_path / "lake" / "uploads"))
    source = connect(str(tmp_path / "others")).create_table("rows", pa.table({"text": [SECRET]}))
    forged.create_materialized_view("view", source.search(None).select(["text"]))
    entry = CatalogClient(tmp_path / "lake").register_table("view", tmp_path / "lake" / "uploads" / "view.lance")
    with pytest.raises(ForeignFileError, match="its source is a table outside"):
        entry.computed().refresh()
    assert SECRET not in str(entry.to_arrow_reader().read_all())
    allowed = CatalogClient(tmp_path / "lake", allow=[str(tmp_path / "others")])
    allowed.get_table("view").computed().refresh()
    assert SECRET in str(allowed.get_table("view").to_arrow_reader().read_all())


# --- what is allowed


def test_folders_that_are_allowed_are_read_by_a_client_and_not_by_a_server(world: World, tmp_path: Path) -> None:
    blob = blobs(tmp_path / "blob.lance", Blob.from_uri(world.file.as_uri()), b"x")
    clone = tmp_path / "clone.lance"
    lance.dataset(str(world.rows)).shallow_clone(str(clone), 2)
    client = CatalogClient(tmp_path / "lake", allow=[str(world.outside)])
    assert client.register_table("blob", blob).reader().to_pydict()["text"] == [SECRET.encode(), b"x"]
    assert client.register_table("clone", clone).reader().count() == 3
    assert connect(str(tmp_path), allow=[str(world.outside)]).open_table("blob").to_arrow().num_rows == 2
    with pytest.raises(ForeignFileError, match="a file outside"):
        connect(str(tmp_path)).open_table("blob").to_arrow()
    served = CatalogService(client, ServiceOptions(readable=[str(world.outside), str(tmp_path)])).catalog
    assert served.get_table("clone").reader().count() == 3
    with pytest.raises(Exception, match="a file outside"):
        served.get_table("blob").reader().to_pydict()
    with pytest.raises(UsageError, match="allow must be a list"):
        connect(str(tmp_path), allow=str(world.outside))


def test_a_clone_of_a_table_of_the_lake_is_read(tmp_path: Path) -> None:
    good(tmp_path / "lake" / "a.lance")
    lance.dataset(str(tmp_path / "lake" / "a.lance")).shallow_clone(str(tmp_path / "lake" / "b.lance"), 1)
    lance.dataset(str(tmp_path / "lake" / "a.lance")).create_branch("own")
    client = CatalogClient(tmp_path / "lake")
    assert client.register_table("clone", tmp_path / "lake" / "b.lance").reader().count() == 1
    branch_place = tmp_path / "lake" / "a.lance" / "tree" / "own"
    assert client.register_table("branch", branch_place).reader().count() == 1
    assert connect(str(tmp_path / "lake")).open_table("b").count_rows() == 1
    assert LanceTable(branch_place, "branch").snapshot().count() == 1  # of which the table around it is a part


def test_no_compaction_or_change_reads_what_a_row_names(world: World, tmp_path: Path) -> None:
    blobs(tmp_path / "x.lance", b"x", b"y")
    entry = CatalogClient(tmp_path / "lake").register_table("x", tmp_path / "x.lance")
    blobs(tmp_path / "x.lance", Blob.from_uri(world.file.as_uri()), mode="append")
    for call in (
        lambda: entry.do_maintenance(compact_fragments=True),
        lambda: entry.computed().delete("text IS NULL"),
        lambda: entry.computed().search(None).to_arrow(),
    ):
        with pytest.raises(ForeignFileError):
            call()


def test_rows_that_are_written_name_no_files(world: World, tmp_path: Path) -> None:
    rows = pa.table({"text": blob_array([Blob.from_uri(world.file.as_uri())])}, schema=pa.schema([blob_field("text")]))
    client = CatalogClient(tmp_path / "lake", allow=[str(world.outside)])
    for name, schema in (("typed", rows.schema), ("marked", pa.schema([pa.field("text", pa.large_binary())]))):
        table = client.create_table(name, schema)
        for write in (table.append, table.overwrite):
            with pytest.raises(WriteError):
                write(rows)
        assert SECRET not in str(table.reader().to_pylist())


# --- uploads, folders of the lake, the secret


def test_the_sdk_stages_a_forged_table_and_gets_nothing(world: World, rerun: Any, tmp_path: Path) -> None:
    if not hasattr(rerun, "stage"):
        pytest.skip("this release of the SDK does not upload")
    blobs(tmp_path / "x.lance", Blob.from_uri(world.file.as_uri()), b"y" * 3_000_000)
    for file in sorted(path for path in (tmp_path / "x.lance").rglob("*") if path.is_file()):
        place = rerun.stage(file, key=f"staged.lance/{file.relative_to(tmp_path / 'x.lance')}")
        assert place.startswith(world.lake.as_uri())
    with pytest.raises(Exception, match="is not opened") as caught:
        rerun.register_table("staged", (world.lake / "uploads" / "staged.lance").as_uri())
    assert SECRET not in str(caught.value)
    good(tmp_path / "good.lance")
    for file in sorted(path for path in (tmp_path / "good.lance").rglob("*") if path.is_file()):
        rerun.stage(file, key=f"good.lance/{file.relative_to(tmp_path / 'good.lance')}")
    found = rerun.register_table("good", (world.lake / "uploads" / "good.lance").as_uri())
    assert found.reader().to_pydict()["text"] == [GOOD]


@pytest.mark.parametrize(
    ("key", "data"),
    [
        ("a.sh", b"#!/bin/sh"),
        ("a.rrd", b"abc"),
        ("a", b""),
        ("x/_versions/1.manifest", b"....LANC"),
        ("x.lance/_versions/1.manifest", b"no manifest"),
        ("x.lance/data/1.lance", b"no rows"),
        ("x.lance/_jobs/1.json", b"{}"),
        ("x.lance/data/deeper/than/that.blob", b"x"),
    ],
)
def test_uploads_are_recordings_and_tables(tmp_path: Path, key: str, data: bytes) -> None:
    uploads = Uploads(tmp_path)
    upload = uploads.begin(key)
    upload.write(data)
    with pytest.raises(UsageError, match="is not an RRD"):
        upload.publish()
    upload.discard()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_an_upload_in_parts_is_a_recording_or_of_a_table(tmp_path: Path) -> None:
    parts = UploadParts(Uploads(tmp_path), "0" * 32)
    part = parts.begin(1)
    part.write(b"#!/bin/sh")
    part.publish()
    with pytest.raises(UsageError, match="is not an RRD"):
        parts.join("a.sh", {1: part.etag}, None, 100, lambda: None)
    assert not (tmp_path / "uploads" / "a.sh").exists()


@pytest.mark.parametrize(
    "inside", ["", "catalog", "catalog/x", "datasets/x", ".serve", ".serve/x", "uploads", "tables"]
)
def test_no_table_is_in_a_folder_that_the_lake_has_for_itself(world: World, rerun: Any, inside: str) -> None:
    before = sorted(world.lake.glob("*"))
    client = CatalogClient(world.lake)
    place = world.lake / inside
    with pytest.raises(UsageError, match="of the catalog itself"):
        client.register_table("own", place)
    if inside and inside not in ("uploads", "tables"):
        with pytest.raises(UsageError, match="of the catalog itself"):
            client.create_table("own", SCHEMA, place)
    with pytest.raises(UsageError, match="of the catalog itself"):
        client.create_table_at("own", SCHEMA, place)
    with pytest.raises(Exception, match=r"of the (catalog|lake) itself"):
        rerun.register_table("own", place.as_uri())
    assert sorted(world.lake.glob("*")) == before


def test_a_folder_that_was_there_stays_where_a_name_is_taken(tmp_path: Path) -> None:
    client = CatalogClient(tmp_path / "lake")
    client.create_table("taken", SCHEMA)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "thesis").write_text("of years")
    with pytest.raises(AlreadyExistsError):
        client.create_table_at("taken", SCHEMA, folder)
    assert (folder / "thesis").read_text() == "of years"
    assert client.create_table_at("free", SCHEMA, folder).reader().count() == 0


def test_the_secret_moves_and_its_tokens_stay(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    CatalogClient(lake).create_dataset("some")
    earlier = lake / ".serve-secret"
    secret = secret_of(earlier, make=True)
    given = token(secret, can_write=True, seconds=60, hosts=[], subject="tests")
    now = secret_of(secret_place(str(lake)), make=True)
    assert (now, earlier.exists(), secret_place(str(lake)).parent.name) == (secret, False, ".serve")
    assert secret_place(str(lake)).parent.stat().st_mode & 0o077 == 0
    assert Access(now).caller({"authorization": f"Bearer {given}"}).rights.can_write
    earlier.write_text("another one, of an earlier build, which nothing reads any more")
    assert secret_of(secret_place(str(lake)), make=True) == secret


def test_the_secret_stays_where_the_lake_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = tmp_path / ".serve-secret"
    secret = secret_of(earlier, make=True)

    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "it cannot be written")

    monkeypatch.setattr(Path, "rename", refused)
    assert secret_of(secret_place(str(tmp_path)), make=True) == secret


def test_nothing_of_the_lakes_own_is_registered_as_a_recording(world: World, rerun: Any) -> None:
    dataset = rerun.get_dataset("some")
    for name in ("catalog/versions/00000001.json", ".serve/secret", "uploads/../.serve/secret", ".serve/%73ecret"):
        with pytest.raises(Exception, match=r"of the (catalog|lake) itself"):
            dataset.register([f"file://{world.lake}/{name}"]).wait()


# --- cost


def test_a_table_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs(tmp_path / "x.lance", *[b"x"] * 3)
    linked_to = tmp_path / "x.lance" / "data" / "beside"
    linked_to.symlink_to(tmp_path / "x.lance" / "data")
    monkeypatch.setattr(gate, "_SETTLED_NS", -(10**18))
    counts = collections.Counter[str]()
    for name in ("_outer_blobs",):
        original = getattr(gate, name)

        def counted(*args: Any, name: str = name, original: Any = original) -> Any:
            counts[name] += 1
            return original(*args)

        monkeypatch.setattr(gate, name, counted)
    scans: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(gate.os, "scandir", lambda path: (scans.append(str(path)), scandir(path))[1])
    table = LanceTable(tmp_path / "x.lance", "x")
    for _ in range(3):
        assert sum(batch.num_rows for batch in table.snapshot().batches()) == 3
    assert (counts["_outer_blobs"], len(scans)) == (1, len(set(scans)))
    blobs(tmp_path / "x.lance", b"y", mode="append")
    assert sum(batch.num_rows for batch in table.snapshot().batches()) == 4
    assert counts["_outer_blobs"] == 2
