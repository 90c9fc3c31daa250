"""Pipelines from files and functions: what is loaded, what it may import, and what is said when it is wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from chunkmill.engine import Chunk, ComponentColumn, LazyChunkStream, PipelineError, UsageError, load_pipeline
from chunkmill.engine.errors import ReadError

PASSES = "def pipeline(stream):\n    return stream\n"
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a Python file in a folder of its own, under the given name."""

    def written(text: str, name: str = "pipeline.py") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return written


def stream() -> LazyChunkStream:
    return LazyChunkStream.from_iter([Chunk.from_columns(p, [], [ComponentColumn("x", [1])]) for p in ("/a", "/b")])


def entities(given: LazyChunkStream) -> list[str]:
    return [c.entity_path for c in given.to_chunks(executor="inline")]


def moved(chunk: Chunk) -> Chunk:
    return chunk.with_entity_path("/moved" + chunk.entity_path)


def test_a_file_gives_its_function_pipeline(write: Write) -> None:
    path = write("def pipeline(stream):\n    return stream.filter(content='/b')\n")
    loaded = load_pipeline(path)
    assert (loaded.name, loaded.location, str(loaded)) == ("pipeline", path, f"{path}:pipeline")
    assert entities(loaded.apply(stream())) == ["/b"]


def test_another_function_is_named_behind_a_colon(write: Write) -> None:
    path = write(PASSES + "def only_a(stream):\n    return stream.filter(content='/a')\n")
    assert entities(load_pipeline(f"{path}:only_a").apply(stream())) == ["/a"]


def test_a_file_may_have_a_colon_in_its_name(write: Write) -> None:
    assert load_pipeline(str(write(PASSES, "a:b"))).name == "pipeline"


def test_a_relative_path_is_that_of_the_folder_at_hand(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(PASSES)
    monkeypatch.chdir(path.parent)
    assert load_pipeline("pipeline.py").location == path


def test_a_function_is_a_pipeline() -> None:
    def upper(given: LazyChunkStream) -> LazyChunkStream:
        return given.map(moved)

    loaded = load_pipeline(upper)
    assert loaded.name.endswith("upper") and loaded.location == Path(__file__)
    assert entities(loaded.apply(stream())) == ["/moved/a", "/moved/b"]
    assert load_pipeline(loaded) is loaded


def test_modules_beside_the_file_are_found_and_belong_to_it(write: Write) -> None:
    text = "from calibration import NAME\nimport parts.inner\n"
    text += "def pipeline(stream):\n    return stream.filter(content=NAME)\n"
    loaded = []
    for name in ("a", "b"):
        write(f"NAME = '/{name}'\n", f"{name}/calibration.py")
        write("from . import deeper\n", f"{name}/parts/inner.py")
        write("", f"{name}/parts/deeper.py")
        loaded.append(load_pipeline(write(text, f"{name}/pipeline.py")))
    assert [entities(one.apply(stream())) for one in loaded] == [["/a"], ["/b"]]
    assert not {"calibration", "parts", "parts.inner", "parts.deeper"} & sys.modules.keys()
    assert not any(str(one.location.parent) in sys.path for one in loaded if one.location)


def test_a_file_is_loaded_as_it_stands(write: Write) -> None:
    for name in ("/a", "/b"):
        path = write(f"def pipeline(stream):\n    return stream.filter(content='{name}')\n")
        os.utime(path, (0, 0))
        assert entities(load_pipeline(path).apply(stream())) == [name]


def test_dataclasses_and_type_hints_of_the_file_work(write: Write) -> None:
    path = write(
        "from __future__ import annotations\n"
        "import typing\nfrom dataclasses import dataclass\nfrom typing import ClassVar\n"
        "@dataclass\nclass Only:\n    content: str\n    seen: ClassVar[int] = 0\n"
        "    def __call__(self, stream: Only) -> int:\n        return stream.filter(content=self.content)\n"
        "typing.get_type_hints(Only)\n"
        "pipeline = Only('/a')\n"
    )
    assert entities(load_pipeline(path).apply(stream())) == ["/a"]


WRONG_CALLS = {
    "no_such_function": ("def other(stream): return stream", "defines no function 'pipeline'. .*(other)"),
    "no_function": ("pipeline = 3", "'pipeline' is not a function but a 'int'"),
    "two_arguments": ("def pipeline(stream, speed): return stream", "missing a required argument: 'speed'"),
    "no_argument": ("def pipeline(): return 1", "too many positional arguments"),
    "only_by_name": ("def pipeline(*, stream): return stream", "cannot be called with one stream"),
}


@pytest.mark.parametrize(("text", "said"), WRONG_CALLS.values(), ids=WRONG_CALLS)
def test_a_file_without_a_fitting_function_is_refused(write: Write, text: str, said: str) -> None:
    path = write(text)
    with pytest.raises(UsageError, match=said) as caught:
        load_pipeline(path)
    assert caught.value.path == str(path)


@pytest.mark.parametrize("location", ["gone.py", "gone.py:pipeline", "s3://fleet/pipeline.py", "."])
def test_what_is_no_file_is_refused(location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"no such file|is a local file|this is not a file"):
        load_pipeline(location)
    with pytest.raises(UsageError, match="'int' object"):
        load_pipeline(3)  # type: ignore[arg-type]


BROKEN = {
    "syntax": ("x = 1\ndef pipeline(stream:\n", "line 2: the pipeline cannot be loaded: SyntaxError"),
    "name": ("x = 1\n\ny = z\n", "line 3: the pipeline cannot be loaded: NameError: name 'z' is not defined"),
    "import": (
        "import no_such_module_of_anyone\n",
        "line 1: .* ModuleNotFoundError.* Install no_such_module_of_anyone",
    ),
    "exit": ("import sys\nsys.exit(3)\n", "line 2: the pipeline cannot be loaded: SystemExit: 3"),
    "library": ("import json\n\n\njson.loads('{')\n", "line 4: the pipeline cannot be loaded: JSONDecodeError"),
    "relative": ("from . import calibration\n", "line 1: .*without dots"),
    "zero": ("x = 1\0", "null byte"),
}


@pytest.mark.parametrize(("text", "said"), BROKEN.values(), ids=BROKEN)
def test_a_file_that_fails_to_load_is_told_by_its_own_line(write: Write, text: str, said: str) -> None:
    path = write(text)
    before = set(sys.modules)
    with pytest.raises(PipelineError, match=said) as caught:
        load_pipeline(path)
    assert caught.value.path == str(path)
    assert not {n for n in set(sys.modules) - before if n.startswith("chunkmill_pipeline")}


def test_a_failure_in_a_module_beside_it_names_that_module(write: Write) -> None:
    beside = write("\n\n1 / 0\n", "ratios.py")
    with pytest.raises(PipelineError, match=r"line 3: .*ZeroDivisionError") as caught:
        load_pipeline(write("import ratios\n"))
    assert caught.value.path == str(beside)


def test_a_module_beside_it_that_hides_a_loaded_one_is_refused(write: Write) -> None:
    write("", "json.py")
    with pytest.raises(
        PipelineError, match="line 2: the module 'json' next to the file cannot be imported, because another"
    ):
        load_pipeline(write("x = 1\nimport json\n" + PASSES))


WRONG_RESULTS = {
    "nothing": ("stream.filter(content='/a')", "returned nothing"),
    "no_stream": ("return [stream]", "returned a 'list' object"),
    "consumed": ("stream.filter(content='/a')\n    return stream", "another operation has already consumed"),
    "twice": ("stream.map(print)\n    return stream.map(print)", "line 3: pipeline raised ValueError: .*consumed"),
    "raises": ("\n    raise LookupError('no\\ncalibration')", "line 3: pipeline raised LookupError: no calibration"),
    "attribute": ("return stream.fliter(content='/a')", "line 2: pipeline raised AttributeError"),
}


@pytest.mark.parametrize(("body", "said"), WRONG_RESULTS.values(), ids=WRONG_RESULTS)
def test_what_the_function_does_wrong_is_said_with_its_line(write: Write, body: str, said: str) -> None:
    path = write(f"def pipeline(stream):\n    {body}\n")
    with pytest.raises(PipelineError, match=said) as caught:
        load_pipeline(path).apply(stream())
    assert caught.value.path == str(path)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_coroutine_is_refused(write: Write) -> None:
    with pytest.raises(PipelineError, match="returned a 'coroutine' object"):
        load_pipeline(write("async def pipeline(stream):\n    return stream\n")).apply(stream())


def test_an_error_of_a_run_gets_the_line_it_comes_from(write: Write, tmp_path: Path) -> None:
    path = write(
        "def fails(chunk):\n    return {}[chunk.entity_path]\ndef pipeline(stream):\n    return stream.map(fails)\n"
    )
    loaded = load_pipeline(path)
    with pytest.raises(KeyError) as caught:
        loaded.apply(stream()).write_rrd(tmp_path / "a.rrd", application_id="a", recording_id="b", executor="inline")
    assert str(loaded.explained(caught.value)) == f"CM401: {path}: line 2: KeyError: '/a'."
    caused = RuntimeError("in a lens")
    caused.__cause__ = caught.value
    assert str(loaded.explained(caused)) == f"CM401: {path}: line 2: RuntimeError: in a lens."
    foreign = KeyError("x")
    assert loaded.explained(foreign) is foreign
    damaged = ReadError("cut")
    damaged.__traceback__ = caught.value.__traceback__
    assert loaded.explained(damaged) is damaged
