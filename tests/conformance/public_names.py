"""Dump the public names with their signatures, commands, served calls and messages, or compare two builds by them.

    python -m tests.run conformance public_names dump [FILE]
    python -m tests.run conformance public_names compare BEFORE AFTER

BEFORE and AFTER are files that ``dump`` has written, or interpreters in whose environments chunkmill is installed. What
was removed, changed, retyped, reworded and added is printed. Something removed or changed ends with exit code 1, with
``--strict`` also something retyped or reworded: other annotations, and other first lines of docstrings and help.

Public is what the reference in ``docs/api`` shows or says to import from, and what other programs have to name: options
of commands and formats, calls and messages of the server, suffixes, data sources of Spark, codes of errors, variables
of the environment. ``--rooms`` adds the faces of all other packages, which may change in any release.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import json
import pkgutil
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

FACES = (
    "chunkmill",
    "chunkmill.alignment",
    "chunkmill.catalog_0_27",
    "chunkmill.catalog_server",
    "chunkmill.engine",
    "chunkmill.engine.catalog",
    "chunkmill.engine.catalog.server",
    "chunkmill.engine.catalog.v0_27",
    "chunkmill.engine.chunk",
    "chunkmill.engine.data_sources",
    "chunkmill.engine.errors",
    "chunkmill.engine.execution",
    "chunkmill.engine.frames",
    "chunkmill.engine.ingest",
    "chunkmill.engine.ingest.metrics",
    "chunkmill.engine.inputs",
    "chunkmill.engine.limits",
    "chunkmill.engine.locations",
    "chunkmill.engine.optimisation.video",
    "chunkmill.engine.pipelines",
    "chunkmill.engine.query",
    "chunkmill.engine.recordings",
    "chunkmill.engine.reports",
    "chunkmill.engine.rrd",
    "chunkmill.engine.store",
    "chunkmill.engine.stream",
    "chunkmill.engine.tables",
    "chunkmill.engine.training",
    "chunkmill.engine.video",
    "chunkmill.engine.viewer",
    "chunkmill.engine.writers",
    "chunkmill.lenses",
    "chunkmill.lenses.archetypes",
    "chunkmill.lenses.foxglove",
    "chunkmill.lenses.ros2",
    "chunkmill.lenses.ros2.mappings",
    "chunkmill.lenses.selector",
    "chunkmill.readers",
    "chunkmill.readers.inspection",
    "chunkmill.readers.lerobot",
    "chunkmill.readers.mcap",
    "chunkmill.readers.mcap.info",
    "chunkmill.readers.parquet",
    "chunkmill.readers.parquet.reader",
    "chunkmill.training",
    "chunkmill.video",
)
"""Modules from which the reference, the guide, or names in Spark's configuration import."""

UNSTATED = "unstated"
"""The default of an argument of a ``TypedDict``, which is in the function that takes it apart."""

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_VARIABLE = re.compile(r"\bCHUNKMILL_[A-Z0-9_]+\b")
_PLAIN_VALUES = (Enum, str, bytes, bool, int, float, tuple, frozenset)
_OTHER_SOURCES = ("dataset", "store")
_FIELDS = ("member_descriptor", "_tuplegetter", "cached_property")

Dump: TypeAlias = dict[str, dict[str, Any]]


def first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def shown(value: object) -> str:
    """Return the text of a value, without addresses of objects; of a class its name, wherever its module is."""
    if value is inspect.Parameter.empty:
        return ""
    if inspect.isclass(value) or inspect.isroutine(value):
        return str(value.__qualname__)
    if isinstance(value, Enum):
        return str(value)
    return _ADDRESS.sub("", repr(value))


def annotation_text(annotation: object) -> str:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__forward_arg__", shown(annotation))
    return re.sub(r"\bchunkmill\.(\w+\.)*", "", text)


def unpacked(function: Any, parameter: inspect.Parameter) -> list[list[str]]:
    """Return the arguments that ``**options: Unpack[Options]`` stands for, or the parameter alone."""
    hint = re.fullmatch(r"(?:typing\.)?Unpack\[([\w.]+)\]", annotation_text(parameter.annotation))
    name = hint[1].rpartition(".")[2] if hint else ""
    options = getattr(inspect.unwrap(function), "__globals__", {}).get(name)
    if options is None:
        return [[f"**{parameter.name}", annotation_text(parameter.annotation), ""]]
    required = getattr(options, "__required_keys__", frozenset())
    fields = {
        key: hint for kind in reversed(options.__mro__) for key, hint in vars(kind).get("__annotations__", {}).items()
    }
    return [[f"*, {key}", annotation_text(hint), "" if key in required else UNSTATED] for key, hint in fields.items()]


def arguments(function: Any) -> list[list[str]] | None:
    """Return a triple of name, annotation and default for each argument, and one for what comes back."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    rows = []
    marks = {"POSITIONAL_ONLY": "/, ", "KEYWORD_ONLY": "*, ", "VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            rows += unpacked(function, parameter)
        else:
            name = marks.get(parameter.kind.name, "") + parameter.name
            rows.append([name, annotation_text(parameter.annotation), shown(parameter.default)])
    ordered = [row for row in rows if not row[0].startswith("*, ")]
    return [
        *ordered,
        *sorted(row for row in rows if row[0].startswith("*, ")),
        ["return", annotation_text(signature.return_annotation), ""],
    ]


def member(value: Any) -> dict[str, Any]:
    """Describe one attribute of a class, as the class has it."""
    if isinstance(value, property):
        returned = annotation_text(getattr(value.fget, "__annotations__", {}).get("return", ""))
        return {"kind": "property", "types": [returned], "doc": first_line(value.__doc__)}
    function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    if inspect.isroutine(function):
        kind = type(value).__name__ if function is not value else "method"
        return {"kind": kind, "arguments": arguments(function), "doc": first_line(inspect.getdoc(function))}
    if type(value).__name__ in _FIELDS:
        return {"kind": "property"}
    return {"kind": "attribute", "value": value_text(value)}


def value_text(value: object) -> str:
    return shown(value) if isinstance(value, _PLAIN_VALUES) else type(value).__name__


def is_own(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).startswith("chunkmill")


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield each public attribute that chunkmill gives a class, by whichever of its classes.

    Fields of data classes are in the arguments.
    """
    seen = {*getattr(kind, "__dataclass_fields__", ())}
    for base in kind.__mro__:
        for name, value in vars(base).items() if is_own(base) else ():
            if name not in seen and (
                not name.startswith("_") or name in ("__call__", "__enter__", "__iter__", "__len__")
            ):
                seen.add(name)
                yield name, value


def described(thing: Any) -> dict[str, Any]:
    """Describe what a face has by a name."""
    doc = first_line(inspect.getdoc(thing)) if inspect.isclass(thing) or inspect.isroutine(thing) else ""
    if inspect.isclass(thing):
        kind = "exception" if issubclass(thing, BaseException) else "class"
        return {"kind": kind, "arguments": arguments(thing) if is_own(thing) else None, "doc": doc}
    if inspect.isroutine(thing):
        return {"kind": "function", "arguments": arguments(thing), "doc": doc}
    if isinstance(thing, ModuleType):
        return {"kind": "module"}
    return {"kind": "value", "value": value_text(thing)}


def names_of(module: ModuleType) -> list[str]:
    """Return the names of a face, or, of a module without ``__all__``, those that it defines."""
    own = [
        n for n, v in vars(module).items() if not n.startswith("_") and getattr(v, "__module__", "") == module.__name__
    ]
    return sorted(getattr(module, "__all__", own))


def faces(rooms: bool) -> list[str]:
    if not rooms:
        return list(FACES)
    import chunkmill

    packages = [info.name for info in pkgutil.walk_packages(chunkmill.__path__, "chunkmill.") if info.ispkg]
    return sorted({*FACES, *packages})


def dump_faces(rooms: bool) -> Dump:
    """Describe the names of the faces, and the members of their classes under the class alone."""
    dump: Dump = {}
    for face in faces(rooms):
        try:
            module = importlib.import_module(face)
        except ModuleNotFoundError:
            continue
        for name in names_of(module):
            try:
                thing = getattr(module, name)
            except ImportError:
                dump[f"{face}: {name}"] = {"kind": "of an extra that is missing here"}
                continue
            dump[f"{face}: {name}"] = described(thing)
            if inspect.isclass(thing) and is_own(thing):
                release = "v0_27." if ".v0_27" in thing.__module__ else ""
                dump.update({f"class {release}{name}: {key}": member(value) for key, value in members(thing)})
    return dump


def dump_commands() -> Dump:
    """Describe each command and each of its options."""
    import click

    root = importlib.import_module("chunkmill.engine.cli.commands").commands
    dump: Dump = {}

    def walk(command: click.Command, path: str, context: click.Context) -> None:
        dump[f"command {path}"] = {"kind": type(command).__mro__[1].__name__, "doc": first_line(command.help)}
        for parameter in command.get_params(context):
            facts = parameter.to_info_dict()
            key = " ".join([*facts["opts"], *facts["secondary_opts"]])
            kept = (
                "param_type_name",
                "required",
                "nargs",
                "multiple",
                "default",
                "envvar",
                "is_flag",
                "flag_value",
                "hidden",
            )
            dump[f"command {path}: {key}"] = {
                "kind": facts["param_type_name"],
                "value": {name: _ADDRESS.sub("", str(facts.get(name))) for name in kept},
                "types": [_ADDRESS.sub("", json.dumps(facts["type"], sort_keys=True, default=str))],
                "doc": first_line(facts.get("help")),
            }
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                walk(inner, f"{path} {name}", click.Context(inner, parent=context, info_name=name))

    walk(root, "chunkmill", click.Context(root, info_name="chunkmill"))
    return dump


def field_text(field: Any) -> str:
    """Return the name and the type of a field, and True if it is repeated."""
    inner = field.message_type or field.enum_type
    return f"{field.name} {field.type} {field.is_repeated} {inner.full_name if inner else ''}".rstrip()


def dump_messages(descriptor: Any, dump: Dump) -> None:
    """Describe the fields of a message, and of those inside it."""
    key = f"message {descriptor.full_name}"
    if key in dump:
        return
    fields = {field.number: field_text(field) for field in descriptor.fields}
    dump[key] = {"kind": "message", "value": {str(number): fields[number] for number in sorted(fields)}}
    for field in descriptor.fields:
        if field.message_type is not None:
            dump_messages(field.message_type, dump)


def dump_calls() -> Dump:
    """Describe each call that a server answers, and its messages."""
    from chunkmill.engine.catalog.server import CatalogService

    dump: Dump = {}
    with tempfile.TemporaryDirectory() as folder:
        for path, method in CatalogService(folder).methods.items():
            facts = [method.kind.name, method.request.DESCRIPTOR.full_name, method.response.DESCRIPTOR.full_name]
            dump[f"call {path}"] = {"kind": "call", "value": [*facts, method.writes, method.waits]}
            dump_messages(method.request.DESCRIPTOR, dump)
            dump_messages(method.response.DESCRIPTOR, dump)
    return dump


def dump_words() -> Dump:
    """Describe what other programs name in text: formats, data sources, variables of the environment."""
    import chunkmill
    from chunkmill import readers

    dump: Dump = {}
    for name in (
        "pyspark_chunkmill",
        *(f"pyspark_chunkmill_{source}" for source in (*readers.FORMATS, *_OTHER_SOURCES)),
    ):
        if importlib.util.find_spec(name):
            dump[f"data source {name}"] = {"kind": "module", "value": names_of(importlib.import_module(name))}
    for suffix in readers.all_suffixes():
        dump[f"suffix {suffix}"] = {"kind": "suffix", "value": shown(readers.format_of_name(f"a{suffix}").name)}
    for option in readers.all_options():
        dump[f"option {option.name}"] = {"kind": "option", "value": _ADDRESS.sub("", type(option).__name__)}
    texts = [
        path.read_text(encoding="utf-8")
        for folder in {str(Path(p)) for part in (chunkmill, chunkmill.engine, readers) for p in part.__path__}
        for path in Path(folder).rglob("*.py")
    ]
    for name in {name for text in texts for name in _VARIABLE.findall(text)}:
        dump[f"variable {name}"] = {"kind": "variable"}
    return dump


def made_dump(rooms: bool) -> Dump:
    return {**dump_faces(rooms), **dump_commands(), **dump_calls(), **dump_words()}


def read_dump(place: str, rooms: bool) -> Dump:
    """Return the dump of a file, or that of the environment of an interpreter."""
    if place.endswith(".json"):
        text = Path(place).read_text(encoding="utf-8")
    else:
        command = [str(Path(place).absolute()), str(Path(__file__).resolve()), "dump", *(["--rooms"] if rooms else [])]
        text = subprocess.run(command, cwd=tempfile.gettempdir(), check=True, stdout=subprocess.PIPE, text=True).stdout
    dump: Dump = json.loads(text)
    return dump


def same_arguments(before: Any, after: Any, column: int) -> bool:
    """Return True if arguments have the same names and values in a column; an unstated default is as any."""
    if before is None or after is None or len(before) != len(after):
        return bool(before == after)
    return all(
        one[0] == other[0] and (one[column] == other[column] or UNSTATED in (one[column], other[column]))
        for one, other in zip(before, after, strict=True)
    )


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return the gravest way in which two descriptions differ, or an empty text."""
    lists = before.get("arguments"), after.get("arguments")
    if before["kind"] != after["kind"] or before.get("value") != after.get("value") or not same_arguments(*lists, 2):
        return "changed"
    if before.get("types") != after.get("types") or not same_arguments(*lists, 1):
        return "retyped"
    return "reworded" if before.get("doc") != after.get("doc") else ""


def differing_arguments(before: Any, after: Any) -> str:
    old, new = ({tuple(row) for row in rows or ()} for rows in (before, after))
    texts = [
        f"{mark} {name}: {kind} = {default}"
        for mark, rows in (("-", old - new), ("+", new - old))
        for name, kind, default in sorted(rows)
    ]
    return "; ".join(texts)


def shown_difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return what differs between two descriptions, and nothing of what does not."""
    texts = [
        differing_arguments(before.get(key), after.get(key))
        if key == "arguments"
        else f"{before.get(key)!r} -> {after.get(key)!r}"
        for key in ("kind", "value", "arguments", "types", "doc")
        if before.get(key) != after.get(key)
    ]
    return "; ".join(texts)


def compared(before: Dump, after: Dump) -> dict[str, list[str]]:
    """Return the lines to print, by what they say."""
    lines: dict[str, list[str]] = {"removed": [], "changed": [], "retyped": [], "reworded": [], "added": []}
    for key in sorted(before | after):
        if key not in after:
            lines["removed"].append(key)
        elif key not in before:
            lines["added"].append(key)
        elif kind := difference(before[key], after[key]):
            lines[kind].append(f"{key}: {shown_difference(before[key], after[key])}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    dump = actions.add_parser("dump", help="write the names of this environment to FILE or the standard output")
    dump.add_argument("file", nargs="?", type=Path)
    compare = actions.add_parser("compare", help="compare two dumps or environments")
    compare.add_argument("before")
    compare.add_argument("after")
    compare.add_argument("--strict", action="store_true", help="fail also by other annotations and first lines")
    for action in (dump, compare):
        action.add_argument("--rooms", action="store_true", help="with the faces of all packages")
    options = parser.parse_args()
    if options.action == "dump":
        text = json.dumps(made_dump(options.rooms), indent=1, sort_keys=True)
        if options.file:
            options.file.write_text(text, encoding="utf-8")
        else:
            print(text)
        return 0
    lines = compared(read_dump(options.before, options.rooms), read_dump(options.after, options.rooms))
    for kind, texts in lines.items():
        print(f"{kind}: {len(texts)}")
        print("".join(f"  {text}\n" for text in texts), end="")
    grave = ("removed", "changed", *(("retyped", "reworded") if options.strict else ()))
    return 1 if any(lines[kind] for kind in grave) else 0


if __name__ == "__main__":
    sys.exit(main())
