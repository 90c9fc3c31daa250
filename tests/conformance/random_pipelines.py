"""Random pipelines over real recordings: the same on every executor, run after run, and as Rerun has them.

    python tests/conformance/random_pipelines.py --number 2000 --seed 1 --work /tmp/pipelines
    python tests/conformance/random_pipelines.py --number 300 --peer ~/rerun033/bin/python

Pipelines are made here, from what is in the recordings, and written to a file. Then a process for each executor
(``inline``, ``local[2]``, ``local-cluster``) runs all of them twice. What is compared: each chunk's columns, types and
values in order, the order of chunk and row ids (and how far they are from the first), and what footers say beside what
chunks hold. ``--peer`` names an interpreter with rerun-sdk 0.33.1, which runs the same pipelines: the same rows must
come out, however they are divided into chunks, of recordings that both read alike.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

EXECUTORS = ("inline", "local[2]", "local-cluster[2,1,1024]")
ENDS = ("to_chunks", "iterate", "write_rrd", "shards", "collect", "optimise", "to_spark")
PEER_ENDS = {"to_chunks": "to_chunks", "iterate": "to_chunks", "write_rrd": "write_rrd"}
MODES = ("drop_unmatched", "forward_unmatched", "forward_all")
Spec = dict[str, Any]


# --- making pipelines


class Facts:
    """What is in a recording, for pipelines that find something there."""

    def __init__(self, path: Path) -> None:
        chunks = _chunkmill()["read"](path).to_chunks(executor="inline")
        self.path = str(path)
        self.entities = sorted({c.entity_path for c in chunks})
        self.timelines = sorted({t for c in chunks for t in c.timeline_names})
        self.components = sorted({d.descriptor.component for c in chunks for d in c.header.components})


def made_pipeline(chosen: random.Random, facts: Sequence[Facts]) -> Spec:
    """A pipeline over one to three recordings."""
    some = [chosen.choice(facts) for _ in range(chosen.choice((1, 1, 2, 3)))]
    nodes = [_steps(chosen, {"op": "source", "path": f.path}, f) for f in some]
    node = nodes[0] if len(nodes) == 1 else {"op": "merge", "of": nodes}
    node = _steps(chosen, node, chosen.choice(some))
    return {"node": node, "end": chosen.choice(ENDS)}


def _steps(chosen: random.Random, node: Spec, facts: Facts) -> Spec:
    for _ in range(chosen.randrange(4)):
        node = _step(chosen, node, facts)
    return node


def _step(chosen: random.Random, node: Spec, facts: Facts) -> Spec:
    op = chosen.choice(("filter", "drop", "split", "map", "flat_map", "lenses", "filter", "drop", "collected"))
    if op in ("filter", "drop", "split"):
        return {"op": op, "of": node, "by": _selection(chosen, facts)}
    if op == "lenses" and facts.components:
        component, mode = chosen.choice(facts.components), chosen.choice(MODES)
        return {"op": op, "of": node, "component": component, "mode": mode, "mutates": chosen.random() < 0.4}
    if op == "collected":
        return {"op": op, "of": node, "optimize": chosen.random() < 0.5}
    return {"op": op if op in ("map", "flat_map") else "map", "of": node}


def _selection(chosen: random.Random, facts: Facts) -> Spec:
    kind = chosen.choice(("content", "content", "is_static", "has_timeline", "components"))
    if kind == "content" and facts.entities:
        entity = chosen.choice(facts.entities)
        return {"content": chosen.choice((entity, entity.rpartition("/")[0] + "/**", f"{entity}/**"))}
    if kind == "has_timeline" and facts.timelines:
        return {"has_timeline": chosen.choice(facts.timelines)}
    if kind == "components" and facts.components:
        return {"components": chosen.sample(facts.components, min(2, len(facts.components)))}
    return {"is_static": chosen.random() < 0.5}


# --- building them, with chunkmill's names or Rerun's


def _chunkmill() -> dict[str, Any]:
    import chunkmill.engine as engine
    import chunkmill.lenses as lenses
    import chunkmill.readers as readers

    return {"LazyChunkStream": engine.LazyChunkStream, "profile": engine.OptimizationProfile.OBJECT_STORE,
            "DeriveLens": lenses.DeriveLens, "MutateLens": lenses.MutateLens,
            "read": lambda path: _read(readers, path)}  # fmt: skip


def _rerun() -> dict[str, Any]:
    import rerun.experimental as rerun

    return {"LazyChunkStream": rerun.LazyChunkStream, "profile": rerun.OptimizationProfile.OBJECT_STORE,
            "DeriveLens": rerun.DeriveLens, "MutateLens": rerun.MutateLens,
            "read": lambda path: _read(rerun, path)}  # fmt: skip


def _read(module: Any, path: str | Path) -> Any:
    names = {".mcap": "McapReader", ".rrd": "RrdReader", ".parquet": "ParquetReader"}
    return getattr(module, names[Path(path).suffix])(path).stream()


def renamed(chunk: Any) -> Any:
    """The chunk below another entity."""
    return chunk.with_entity_path("/renamed" + chunk.entity_path)


def doubled(chunk: Any) -> list[Any]:
    """The chunk, and it below another entity."""
    return [chunk, chunk.with_entity_path("/copy" + chunk.entity_path)]


def built(spec: Spec, names: dict[str, Any], **options: Any) -> Any:
    """The stream that a pipeline stands for."""
    op = spec["op"]
    if op == "source":
        return names["read"](spec["path"])
    if op == "merge":
        return names["LazyChunkStream"].merge(*[built(s, names, **options) for s in spec["of"]])
    stream = built(spec["of"], names, **options)
    if op in ("filter", "drop"):
        return getattr(stream, op)(**spec["by"])
    if op == "split":
        selected, rest = stream.split(**spec["by"])
        return names["LazyChunkStream"].merge(selected.map(renamed), rest)
    if op == "map":
        return stream.map(renamed)
    if op == "flat_map":
        return stream.flat_map(doubled)
    if op == "lenses":
        if spec["mutates"]:
            lens = names["MutateLens"](spec["component"], ".")
        else:
            lens = names["DeriveLens"](spec["component"], output_entity="/derived").to_component("derived:values", ".")
        return stream.lenses(lens, output_mode=spec["mode"])
    kept = stream.collect(optimize=names["profile"] if spec["optimize"] else None, **options)
    return kept.stream()


# --- what comes out


def ended(stream: Any, end: str, folder: Path, executor: str) -> tuple[list[Any], list[str]]:
    """The chunks that come out, in order, and what footers and schemas say."""
    from chunkmill.engine import LazyChunkStream, OptimizationProfile
    from chunkmill.readers import RrdReader

    if end == "to_chunks" or (end == "to_spark" and executor == "inline"):
        return stream.to_chunks(executor=executor), []
    if end == "iterate":
        with mock.patch.dict(os.environ, CHUNKMILL_EXECUTOR=executor):
            return list(stream), []
    if end == "to_spark":
        return LazyChunkStream.from_spark(stream.to_spark()).to_chunks(executor=executor), []
    if end in ("collect", "optimise"):
        profile = OptimizationProfile.OBJECT_STORE if end == "optimise" else None
        store = stream.collect(optimize=profile, executor=executor)
        return store.stream().to_chunks(executor="inline"), [str(store.schema())]
    path = folder / ("shards" if end == "shards" else "out.rrd")
    stream.write_rrd(path, application_id="a", recording_id="r", shards=end == "shards", executor=executor)
    files = sorted(path.glob("*.rrd")) if end == "shards" else [path]
    chunks = [c for file in files for c in RrdReader(file).stream().to_chunks(executor="inline")]
    return chunks, [_footer(RrdReader(file)) for file in files]


def _footer(reader: Any) -> str:
    """What the footer says of each chunk; fails where that is not what the chunk holds."""
    store = reader.store()
    told = sorted(str((c.header.chunk_id, c.entity_path, c.num_rows, c.header.timelines)) for c in store.stream())
    held = sorted(
        str((c.data.chunk_id, c.entity_path, c.num_rows, type(c).from_data(c.data).header.timelines))
        for c in reader.stream().to_chunks(executor="inline")
    )
    assert told == held, "the footer says other than the chunks"
    return str(store.schema())


def noting_task(chunks: Iterable[Any]) -> Iterator[str]:
    """What is compared of chunks, in order: all but when the run began."""
    data = [chunk.data for chunk in chunks]
    every = [i for d in data for i in (d.chunk_id, *d.row_ids.to_pylist())]
    ranks = {i: n for n, i in enumerate(sorted(set(every)))}
    for d in data:
        yield f"{d.entity_path} {[(t.name, str(t.kind), t.ticks.tolist()) for t in d.timelines]}"
        yield f"{ranks[d.chunk_id]} {[ranks[i] for i in d.row_ids.to_pylist()]}"
        yield from (f"{c.descriptor} {c.values.type} {c.values.to_pylist()!r}" for c in d.components)


def rows_of(batches: Iterable[pa.RecordBatch]) -> Counter[str]:
    """The rows of chunks, a column at a time, however they are divided into chunks and in whatever order."""
    rows: Counter[str] = Counter()
    for batch in batches:
        entity = batch.schema.metadata[b"rerun:entity_path"].decode()
        kinds = [(f.metadata or {}).get(b"rerun:kind", b"data") for f in batch.schema]
        index = [i for i, kind in enumerate(kinds) if kind == b"index"]
        times = [batch.column(i).cast(pa.int64(), safe=False).to_pylist() for i in index]
        names = [batch.schema.field(i).name for i in index]
        for i, kind in enumerate(kinds):
            if kind == b"data":
                name = batch.schema.field(i).name
                for row, value in enumerate(batch.column(i).to_pylist()):
                    if value is not None:
                        at = sorted(zip(names, (t[row] for t in times), strict=True))
                        rows[f"{entity} {name} {at} {value!r}"] += 1
    return rows


def digest(parts: Iterable[str]) -> str:
    """Short, and equal for equal texts."""
    found = hashlib.sha256()
    for part in parts:
        found.update(part.encode(errors="surrogatepass") + b"\0")
    return found.hexdigest()[:24]


def outcome(spec: Spec, executor: str) -> str:
    """What a pipeline gives on an executor, or how it fails; ``rows`` behind it are those that the peer must have."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            stream = built(spec["node"], _chunkmill(), executor=executor)
            chunks, footers = ended(stream, spec["end"], Path(folder), executor)
            return f"{digest(noting_task(chunks))} {digest(footers)}"
        except AssertionError:
            raise
        except Exception as error:  # noqa: BLE001 (an outcome like others)
            return f"{type(error).__name__}"


def own_rows(spec: Spec) -> str:
    """What the peer must have, by the digest of the rows."""
    return _rows(spec, _chunkmill(), lambda stream: stream.to_chunks(executor="inline"), executor="inline")


def peer_rows(spec: Spec) -> str:
    """The same with Rerun."""
    return _rows(spec, _rerun(), lambda stream: stream.to_chunks())


def _rows(spec: Spec, names: dict[str, Any], end: Callable[[Any], Any], **options: Any) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            chunks = end(built(spec["node"], names, **options))
            return digest(f"{n} {row}" for row, n in sorted(rows_of(c.to_record_batch() for c in chunks).items()))
        except Exception as error:  # noqa: BLE001 (an outcome like others)
            return f"{type(error).__name__}"


# --- the matrix


def recordings(folder: Path, most_bytes: int) -> list[Path]:
    """The recordings of a collection that are not too large."""
    found = (p for kind in ("mcap", "rrd", "parquet") for p in folder.rglob(f"*.{kind}"))
    return sorted(p for p in found if p.stat().st_size <= most_bytes)


def readable(paths: Iterable[Path]) -> list[Facts]:
    """What is in those that can be read, and hold something."""
    from chunkmill.engine.errors import ChunkmillError

    found = []
    for path in paths:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                facts = Facts(path)
            except ChunkmillError:  # damaged on purpose: other tests are about them
                continue
        if facts.entities:
            found.append(facts)
    return found


def _sources(node: Spec) -> list[str]:
    if node["op"] == "source":
        return [node["path"]]
    return [p for n in (node["of"] if node["op"] == "merge" else [node["of"]]) for p in _sources(n)]


def _run(specs: Path, what: str, python: str = sys.executable) -> list[str]:
    """One process for all pipelines; a line for each. The peer panics on some, and goes on behind them."""
    found: list[str] = []
    count = len(specs.read_text().splitlines())
    while len(found) < count:
        command = [python, __file__, "--specs", str(specs), "--from", str(len(found)), "--run", what]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        found += [line[2:] for line in done.stdout.splitlines() if line.startswith("= ")]
        if done.returncode and what != "peer":
            raise subprocess.CalledProcessError(done.returncode, command)
        if done.returncode and len(found) < count:
            found.append(f"died: {done.returncode}")
    return found


def _only(specs: Path, what: str, start: int) -> None:
    """What such a process does."""
    functions = {"own": own_rows, "peer": peer_rows}
    if what.startswith("local"):
        from chunkmill.engine import get_session

        get_session(master=what)
    executor = "spark" if what.startswith("local") else "inline"
    for line in specs.read_text().splitlines()[start:]:
        spec = json.loads(line)
        print("=", functions[what](spec) if what in functions else outcome(spec, executor), flush=True)


def _compare(specs: Sequence[Spec], lines: dict[str, list[str]], what: str) -> int:
    names = list(lines)
    wrong = [i for i, found in enumerate(zip(*lines.values(), strict=True)) if len(set(found)) > 1]
    for i in wrong:
        print(f"{what} {i}: {[(n, lines[n][i]) for n in names]}\n  {json.dumps(specs[i])}")
    print(f"{what}: {len(specs)} pipelines, {len(wrong)} differ ({', '.join(names)})")
    return len(wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[3] / "shared" / "data")
    parser.add_argument("--most-mb", type=float, default=4)
    parser.add_argument("--recordings", type=int, default=10_000, help="the most of them")
    parser.add_argument("--work", type=Path, default=None)
    parser.add_argument("--executors", nargs="*", default=EXECUTORS)
    parser.add_argument("--peer", help="an interpreter with rerun-sdk 0.33.1")
    parser.add_argument("--specs", type=Path)
    parser.add_argument("--from", dest="start", type=int, default=0, help="the first of ``--specs``")
    parser.add_argument("--run")
    options = parser.parse_args()
    if options.run:
        _only(options.specs, options.run, options.start)
        return 0
    work = options.work or Path(tempfile.mkdtemp())
    work.mkdir(parents=True, exist_ok=True)
    chosen = random.Random(options.seed)
    paths = recordings(options.data, int(options.most_mb * 1e6))
    facts = readable(chosen.sample(paths, min(options.recordings, len(paths))))
    specs = [made_pipeline(chosen, facts) for _ in range(options.number)]
    file = work / "pipelines.jsonl"
    file.write_text("".join(json.dumps(spec) + "\n" for spec in specs))
    print(f"{len(specs)} pipelines over {len(facts)} recordings, seed {options.seed}: {file}")
    wrong = 0
    if options.executors:
        lines = {f"{e}, run {n}": _run(file, e) for e in options.executors for n in (1, 2)}
        wrong += _compare(specs, lines, "executors")
    if options.peer:
        plain = work / "plain.jsonl"
        plain.write_text("".join(json.dumps({"node": {"op": "source", "path": f.path}}) + "\n" for f in facts))
        pairs = zip(facts, _run(plain, "own"), _run(plain, "peer", options.peer), strict=True)
        alike = {f.path for f, own, peer in pairs if own == peer}
        print(f"{len(alike)} of {len(facts)} recordings are read alike; the others: differences_by_recording.md")
        some = [spec for spec in specs if alike.issuperset(_sources(spec["node"]))]
        file.write_text("".join(json.dumps(spec) + "\n" for spec in some))
        wrong += _compare(some, {"own": _run(file, "own"), "peer": _run(file, "peer", options.peer)}, "peer")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
