"""The calls of Rerun's SDK that change a catalog: entries, registrations, tables, blueprints, assets, uploads.

Each story is made on an empty catalog of either side, step by step; a step sees what the ones before it did.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from rerun.catalog import EntryId, IndexColumnSelector, OnDuplicateSegmentLayer
from sdk_answers import CALLED
from sdk_recording_calls import Calls, by_ids, by_name, layer_calls, recording_calls, schema_calls
from sdk_sides import ROWS, Side, attribute_calls, texts_of
from sdk_table_calls import table_blueprint_calls, table_calls, write_calls


def stories(side: Side) -> Iterator[tuple[str, Calls]]:
    """All stories, by their names."""
    yield "entries", entry_calls(side)
    yield "names", name_calls(side)
    yield "registration", registration_calls(side)
    yield "layers", many_segments_calls(side)
    yield "unregistration", unregistration_calls(side)
    yield "tables", table_calls(side)
    yield "writes", write_calls(side)
    yield "blueprints", blueprint_calls(side)
    yield "rest", rest_calls(side)
    if hasattr(side.client, "stage"):
        yield "assets", asset_calls(side)
        yield "uploads", upload_calls(side)
        yield "table blueprints", table_blueprint_calls(side)


def entry_calls(side: Side) -> Calls:
    """Datasets as entries: made, found, named anew, and deleted."""
    client = side.client
    yield "url", lambda: client.url
    yield "version", lambda: sorted(vars(client.version_info()))
    yield from listing_calls(side, "none")
    yield "create", lambda: client.create_dataset("drives")
    yield "create again", partial(client.create_dataset, "drives")
    yield "create if there is none", lambda: client.create_dataset("drives", exist_ok=True)
    yield from listing_calls(side, "one")
    dataset = client.get_dataset("drives")
    CALLED.note(EntryId, "as_bytes")
    yield "by id", lambda: client.get_dataset(id=dataset.id)
    yield "by the text of an id", lambda: client.get_dataset(id=str(dataset.id)).name
    yield "bytes of an id", lambda: len(dataset.id.as_bytes())
    yield "by nothing", lambda: client.get_dataset()
    yield "by both", lambda: client.get_dataset("drives", id=dataset.id)
    yield "by an unknown name", partial(client.get_dataset, "nope")
    yield "by an unknown id", lambda: client.get_dataset(id="0123456789ABCDEF0123456789ABCDEF")
    yield "by what is no id", lambda: client.get_dataset(id="nope")
    yield "as a table", partial(client.get_table, "drives")
    yield from attribute_calls(dataset)
    yield "manifest url", lambda: type(dataset.manifest_url)
    yield "set name", partial(dataset.set_name, "trips")
    yield "name", lambda: dataset.name
    yield "by the new name", lambda: client.get_dataset("trips").name
    yield "by the old name", partial(client.get_dataset, "drives")
    yield "set the same name", partial(dataset.set_name, "trips")
    yield "update", partial(dataset.update, name="rides")
    yield "update nothing", dataset.update
    client.create_dataset("other")
    yield "set a taken name", partial(dataset.set_name, "other")
    yield "delete", dataset.delete
    yield from listing_calls(side, "after deletion")
    yield "delete again", dataset.delete
    yield "segments of a deleted dataset", dataset.segment_ids
    yield "schema of a deleted dataset", lambda: dataset.schema().entity_paths()
    yield "register with a deleted dataset", lambda: dataset.register([side.uri("one.rrd")]).wait()
    yield "name of a deleted dataset", partial(dataset.set_name, "again")
    client.get_dataset("other").delete()


def listing_calls(side: Side, when: str) -> Calls:
    """What lists entries."""
    for hidden in (False, True):
        options, which = {"include_hidden": hidden}, f"{when}, {'all' if hidden else 'visible'}"
        client = side.client
        named = (client.entry_names, client.dataset_names, client.table_names)
        for call in (*named, client.entries, client.datasets, client.tables):
            yield f"{call.__name__}: {which}", partial(texts_of, call, **options)


def name_calls(side: Side) -> Calls:
    """Names that entries may have, and may not."""
    client = side.client
    names = ("a-b_c.d:e f[g]", "", " ", "a/b", "ü", "x" * 180, "x" * 181, "__x", "a\nb", "(a)", "-", "UPPER", "1")
    for name in names:
        yield f"dataset {name[:20]!r}", partial(name_of, client.create_dataset, name)
        yield f"table {name[:20]!r}", partial(name_of, client.create_table, f"{name}t" if name else "", ROWS)
    for entry in client.entries(include_hidden=True):
        if not re.match("__(entries|bp_|as_)", entry.name):
            entry.delete()
    yield "list after deletion", client.entry_names


def name_of(create: Any, *args: Any) -> str:
    """The name of an entry that is made."""
    return create(*args).name


def registration_calls(side: Side) -> Calls:
    """Registering recordings."""
    dataset, uri = side.client.create_dataset("registered"), side.uri
    yield "schema of nothing", dataset.arrow_schema
    yield "segments of nothing", dataset.segment_ids
    yield "segment table of nothing", dataset.segment_table
    yield "manifest of nothing", dataset.manifest
    yield "static of nothing", partial(dataset.reader, None)
    yield "by an index of nothing", partial(dataset.reader, "frame")
    yield "ranges of nothing", dataset.get_index_ranges
    yield "one", lambda: dataset.register([uri("one.rrd")]).wait()
    yield "one again", lambda: dataset.register([uri("one.rrd")]).wait()
    for way in OnDuplicateSegmentLayer:
        yield (
            f"one again: {way.value}",
            lambda way=way: dataset.register([uri("one.rrd"), uri("two.rrd")], on_duplicate=way).wait(30),
        )
        yield f"segments after {way.value}", lambda: sorted(dataset.segment_ids())
    yield "as a text", lambda: dataset.register(uri("more.rrd"), layer_name="more").wait()
    yield "as a text once more", lambda: dataset.register(uri("more.rrd"), layer_name="again").wait(timeout_secs=30)
    yield "none", lambda: dataset.register([]).wait()
    yield "too few layers", lambda: dataset.register([uri("one.rrd"), uri("two.rrd")], layer_name=["a"]).wait()
    yield "layers", lambda: dataset.register([uri("one.rrd"), uri("two.rrd")], layer_name=["a", "b"]).wait()
    yield "a layer twice", lambda: dataset.register([uri("one.rrd"), uri("one.rrd")], layer_name="twice").wait()
    yield "a layer without a name", lambda: dataset.register([uri("one.rrd")], layer_name="").wait()
    yield "no such file", lambda: dataset.register([uri("nope.rrd")]).wait()
    yield "no recording", lambda: dataset.register([uri("text.rrd")]).wait()
    yield "a folder", lambda: dataset.register([uri("many")]).wait()
    yield "no URI", lambda: dataset.register(["nope"]).wait()
    yield "a scheme that is not known", lambda: dataset.register(["gopher://x/one.rrd"]).wait()
    yield "a blueprint", lambda: dataset.register([uri("plain.rbl")]).wait()
    yield "a timeline of another type", lambda: dataset.register([uri("otherwise.rrd")]).wait()
    yield "good and bad", lambda: results_of(dataset.register([uri("one.rrd"), uri("otherwise.rrd")], layer_name="mix"))
    yield "after good and bad", dataset.segment_table
    yield "cancelled", lambda: dataset.register([uri("one.rrd")], layer_name="cancelled").cancel()
    yield "all", dataset.segment_table
    yield "all in the manifest", dataset.manifest
    yield "failures in the manifest", partial(dataset.manifest, include_diagnostic_data=True)
    dataset.delete()
    many = side.client.create_dataset("many")
    yield "a prefix", lambda: sorted(many.register_prefix(f"{uri('many')}/").wait().segment_ids)
    yield "a prefix as a layer", lambda: sorted(many.register_prefix(uri("many"), "second").wait().segment_ids)
    yield "a prefix again", lambda: many.register_prefix(uri("many")).wait()
    skip = OnDuplicateSegmentLayer.SKIP
    yield (
        "a prefix again, skipped",
        lambda: sorted(many.register_prefix(uri("many"), on_duplicate=skip).wait().segment_ids),
    )
    yield "a prefix without files", lambda: many.register_prefix(uri("empty")).wait()
    yield "a prefix that is not there", lambda: many.register_prefix(uri("nope")).wait()
    yield "all of the prefix", many.segment_table
    many.delete()


def results_of(operation: Any) -> list[Any]:
    """What came of each file."""
    found = sorted(operation.iter_results(30), key=lambda one: one.uri)
    return [
        (one.uri.rpartition("/")[2], one.segment_id, one.is_success, one.is_error, bool(one.error)) for one in found
    ]


def many_segments_calls(side: Side) -> Calls:
    """Two segments, one of them with two layers, read in all ways; and joined with a table."""
    dataset, uri = side.client.create_dataset("layers"), side.uri
    dataset.register([uri("one.rrd"), uri("two.rrd"), uri("more.rrd")], layer_name=["base", "base", "more"]).wait()
    table = side.client.create_table("labels", pa.schema([("rerun_segment_id", pa.string()), ("label", pa.string())]))
    table.append(rerun_segment_id=["one", "nope"], label=["first", "none"])
    yield "joined", partial(dataset.segment_table, join_meta=table)
    yield "joined with a frame", partial(dataset.segment_table, join_meta=table.reader())
    yield "joined by no column", partial(dataset.segment_table, join_meta=table, join_key="label")
    yield "a view joined", partial(dataset.filter_segments("one").segment_table, join_meta=table)
    yield from recording_calls(dataset, ["one", "two"], side.own)
    yield "store of no such segment", partial(dataset.segment_store, "nope")
    yield "url of no such segment", partial(dataset.segment_url, "nope")
    if hasattr(dataset, "segment"):
        yield "no such segment", partial(dataset.segment, "nope")
        yield "no such layer", partial(dataset.layer, "nope")
        yield "a layer without a name", partial(dataset.layer, "")
        yield from layer_calls(dataset)
        segment = dataset.segment("one")
        yield "delete no such layer", lambda: segment.delete_layer("nope").wait()
        yield "delete a layer", lambda: segment.delete_layer("more").wait(30)
        yield "layers after deletion", segment.layers
        yield "schema after deletion", lambda: by_name(segment.schema().component_columns)
    else:
        yield "download no such segment", lambda: list(dataset.download_segment("nope").chunks())
    table.delete()
    dataset.delete()


def unregistration_calls(side: Side) -> Calls:
    """Taking segments and layers out."""
    dataset, uri = side.client.create_dataset("unregistered"), side.uri
    files = [uri("one.rrd"), uri("two.rrd"), uri("more.rrd")]
    dataset.register(files, layer_name=["base", "base", "more"]).wait()
    drop = partial(dropped, dataset)
    yield "nothing", partial(drop, [], [])
    yield "no such segment", partial(drop, "nope", [])
    yield "no such layer", partial(drop, [], "nope")
    yield "one layer of a segment", partial(drop, "one", "more")
    yield "layers after that", dataset.segment_table
    yield "one segment", partial(drop, ["two"], [], force=True)
    yield "segments after that", dataset.segment_table
    yield "rows after that", partial(dataset.reader, "frame")
    yield "schema after that", dataset.arrow_schema
    yield "a layer of all", partial(drop, [], "base")
    yield "manifest after that", dataset.manifest
    yield "again", lambda: sorted(dataset.register(files[:2]).wait().segment_ids)
    yield "all again", dataset.segment_table
    dataset.delete()


def dropped(dataset: Any, segments: Any, layers: Any, **options: bool) -> Any:
    """What unregistering tells: rows in 0.33, a handle from 0.34 on."""
    done = dataset.unregister(segments_to_drop=segments, layers_to_drop=layers, **options)
    if not hasattr(done, "wait"):
        return done
    return [done.wait(30), done.cancel()]


def blueprint_calls(side: Side) -> Calls:
    """Blueprints of a dataset."""
    dataset, uri = side.client.create_dataset("shown"), side.uri
    dataset.register([uri("one.rrd")]).wait()
    yield "none", dataset.blueprints
    yield "no default", dataset.default_blueprint
    yield "register", partial(dataset.register_blueprint, uri("plain.rbl"))
    yield "number", lambda: len(dataset.blueprints())
    yield "is default", lambda: dataset.default_blueprint() == dataset.blueprints()[0]
    yield "register another", partial(dataset.register_blueprint, uri("grid.rbl"), set_default=False)
    yield "number of both", lambda: len(dataset.blueprints())
    yield "set default", lambda: dataset.set_default_blueprint(sorted(dataset.blueprints())[1])
    yield "default", lambda: sorted(dataset.blueprints()).index(dataset.default_blueprint())
    yield "set no default", partial(dataset.set_default_blueprint, None)
    yield "default after that", dataset.default_blueprint
    yield "set an unknown default", partial(dataset.set_default_blueprint, "nope")
    yield "register a recording", partial(dataset.register_blueprint, uri("one.rrd"))
    yield "register what is not there", partial(dataset.register_blueprint, uri("nope.rbl"))
    hidden = dataset.blueprint_dataset()
    yield "dataset: kind", lambda: hidden.kind
    yield "dataset: schema", hidden.arrow_schema
    yield "dataset: segment table", lambda: hidden.segment_table().drop("rerun_segment_id")
    yield "dataset: chunks", lambda: by_ids(hidden.segment_store(sorted(hidden.segment_ids())[0]).stream().to_chunks())
    yield "dataset: blueprints of it", lambda: hidden.blueprints()
    yield "dataset: set name", partial(hidden.set_name, "views")
    if hasattr(dataset, "default_segment_table_blueprint"):
        first = sorted(dataset.blueprints())[0]
        yield "no default of the segment table", dataset.default_segment_table_blueprint
        yield "set that of the segment table", partial(dataset.set_default_segment_table_blueprint, first)
        yield "that of the segment table", lambda: dataset.default_segment_table_blueprint() == first
        yield (
            "register for the segment table",
            partial(dataset.register_blueprint, uri("plain.rbl"), segment_table=True),
        )
        yield "unset that of the segment table", partial(dataset.set_default_segment_table_blueprint, None)
        yield "none for the segment table", dataset.default_segment_table_blueprint
    yield "delete", dataset.delete
    yield "names after deletion", partial(texts_of, side.client.entry_names, include_hidden=True)
    other = side.client.create_dataset("shown")
    yield "dataset: delete", other.blueprint_dataset().delete
    yield "blueprints without the dataset", other.blueprints
    yield "delete without the dataset", other.delete


def asset_calls(side: Side) -> Calls:
    """Assets of a dataset, from 0.36 on."""
    dataset, uri = side.client.create_dataset("with assets"), side.uri
    dataset.register([uri("one.rrd"), uri("two.rrd")]).wait()
    yield "none", dataset.assets
    yield "none for a segment", partial(dataset.assets_for_segment, "one")
    yield "register", partial(dataset.register_asset, uri("asset.rrd"))
    yield "assets", dataset.assets
    yield "for a segment", partial(dataset.assets_for_segment, "one")
    yield "for no such segment", partial(dataset.assets_for_segment, "nope")
    yield "taken from a segment", partial(dataset.remove_segments_from_asset, "shape", ["one"])
    yield "for it after that", partial(dataset.assets_for_segment, "one")
    yield "for another after that", partial(dataset.assets_for_segment, "two")
    yield "given again", partial(dataset.add_segments_to_asset, "shape", ["one"])
    yield "for it after that again", partial(dataset.assets_for_segment, "one")
    yield "store with it", lambda: by_ids(dataset.segment_store("one").stream().to_chunks())
    yield "store without it", lambda: by_ids(dataset.segment_store("one", include_assets=False).stream().to_chunks())
    yield "schema with it", lambda: by_name(dataset.segment("one").schema(include_assets=True).component_columns)
    yield "register for some", partial(dataset.register_asset, uri("asset.rrd"), mode="opt_in", segments=["two"])
    yield "for one", partial(dataset.assets_for_segment, "one")
    yield "for two", partial(dataset.assets_for_segment, "two")
    yield "register one that is not static", partial(dataset.register_asset, uri("one.rrd"))
    yield "register what is not there", partial(dataset.register_asset, uri("nope.rrd"))
    hidden = dataset.asset_dataset()
    yield "dataset: kind", lambda: hidden.kind
    yield "dataset: segment table", hidden.segment_table
    yield "dataset: assets of it", hidden.assets
    yield "dataset: assets for a segment of it", partial(hidden.assets_for_segment, "shape")
    yield "unregister", partial(dataset.unregister_asset, "shape")
    yield "assets after that", dataset.assets
    yield "unregister again", partial(dataset.unregister_asset, "shape")
    yield "properties that stay", lambda: [hidden._read_asset_property("shape")[:2]]
    yield "delete properties", partial(hidden.delete_segment_properties, "shape")
    yield "delete them again", partial(hidden.delete_segment_properties, ["shape", "nope"])
    yield "properties after that", lambda: hidden._read_asset_property("shape")
    yield "delete", dataset.delete
    yield "names after deletion", partial(texts_of, side.client.entry_names, include_hidden=True)


def upload_calls(side: Side) -> Calls:
    """Files that are sent to the server, from 0.41 on."""
    client, file = side.client, side.files / "one.rrd"
    dataset = client.create_dataset("uploaded")
    places: list[str] = []
    yield "a file", lambda: places.append(client.stage(file, key="run/one.rrd"))
    yield "scheme", lambda: places[0].partition(":")[0]
    yield "register it", lambda: dataset.register(places).wait()
    yield "bytes", lambda: places.append(client.stage((side.files / "two.rrd").read_bytes(), key="run/two.rrd"))
    yield "register them", lambda: dataset.register(places[1:]).wait()
    yield "rows", partial(dataset.reader, "frame")
    yield "a key again", partial(client.stage, file, key="run/one.rrd")
    for key in ("", "/one.rrd", "../one.rrd", "a//b", "a/./b", "a/", "ü.rrd", "x" * 300, "a\\b"):
        yield f"key {key[:9]!r}", lambda key=key: bool(client.stage(b"x", key=key))
    yield "no bytes", lambda: bool(client.stage(b"", key="none"))
    yield "no such file", partial(client.stage, side.files / "nope.rrd", key="nope")
    yield "what is no recording", lambda: dataset.register([client.stage(b"text", key="text.rrd")]).wait()
    write = dataset._write_segments
    yield "written segment", lambda: write(side.files / "two.rrd", "own", layer_name="w").wait(30).segment_ids
    yield "written asset", lambda: dataset._write_asset(side.files / "asset.rrd").wait(30).segment_ids
    yield "written blueprint", lambda: len(dataset._write_blueprint(side.files / "plain.rbl").wait(30).segment_ids)
    dataset.delete()


def rest_calls(side: Side) -> Calls:
    """Maintenance, measuring, and searching, which Rerun's own server does not do."""
    dataset = side.client.create_dataset("rest")
    dataset.register([side.uri("one.rrd")]).wait()
    yield "selector", lambda: IndexColumnSelector("frame")
    yield "benchmark", lambda: sorted(vars(side.client.benchmark(num_bytes=1000, num_pings=1)))
    yield "global maintenance", side.client.do_global_maintenance
    yield "maintenance", dataset.do_maintenance
    yield "maintenance of all", partial(dataset.do_maintenance, True, True, True)
    if hasattr(dataset, "list_search_indexes"):
        yield from search_calls(dataset)
    yield from schema_calls(dataset.schema())
    dataset.delete()


def search_calls(dataset: Any) -> Calls:
    """Searching, which 0.34 took away."""
    column, index = "/notes:TextDocument:text", IndexColumnSelector("frame")
    yield "indexes", dataset.list_search_indexes
    yield "index of words", partial(dataset.create_fts_search_index, column=column, time_index=index)
    yield "index of vectors", partial(dataset.create_vector_search_index, column=column, time_index=index)
    yield "words", partial(dataset.search_fts, "of", column)
    yield "vectors", partial(dataset.search_vector, [1.0, 2.0], column, 3)
    yield "delete indexes", partial(dataset.delete_search_indexes, column)
