"""A griffe extension: the few marks of reStructuredText in docstrings, as Markdown; what classes get at run time."""

from __future__ import annotations

import ast
import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|meth|func|mod|data|attr):`~?(?:[\w.]*\.(?=\w+\.?\w*`))?([^`]+)`")
_BLOCK = re.compile(r"^::$\n", re.MULTILINE)
_EXAMPLE = re.compile(r"^>>> .*\n(?:.+\n?)*", re.MULTILINE)
_TABLE_RULE = re.compile(r"^(=+)  +(=+)$")


class DocstringMarkup(griffe.Extension):
    """Roles become code, examples are fenced, ``::`` goes, simple tables become Markdown's."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of every object that is loaded."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Give a method that ``older`` or ``today`` makes of another the docstring that it gets there."""
        call = attr.value
        if isinstance(call, griffe.ExprCall) and str(call.function) in ("older", "today"):
            arguments = [str(argument) for argument in call.arguments]
            text = next((argument for argument in arguments if argument.startswith("doc=")), arguments[1])
            attr.docstring = griffe.Docstring(as_markdown(ast.literal_eval(text.removeprefix("doc="))), parent=attr)
            attr.value = None

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **_: Any) -> None:
        """Give methods the parameters that ``arguments_of`` takes from a function, but for those it leaves out."""
        modules = [pkg]
        for module in modules:
            modules += [member for member in module.members.values() if isinstance(member, griffe.Module)]
            for cls in (member for member in module.members.values() if isinstance(member, griffe.Class)):
                for method in (member for member in cls.members.values() if isinstance(member, griffe.Function)):
                    for call in (decorator.value for decorator in method.decorators):
                        if isinstance(call, griffe.ExprCall) and str(call.function) == "arguments_of":
                            name, *left_out = (str(argument) for argument in call.arguments)
                            function = loader.modules_collection[module.resolve(name)]
                            itself, *others = [*list(method.parameters)[:1], *list(function.parameters)[1:]]
                            without = "".join(left_out)
                            taken = [each for each in others if f"'{each.name}'" not in without]
                            method.parameters = griffe.Parameters(itself, *taken)

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Give a named tuple the constructor that it gets at run time: its fields, in their order."""
        if "NamedTuple" not in map(str, cls.bases) or "__init__" in cls.members:
            return
        kind = griffe.ParameterKind.positional_or_keyword
        fields = [
            griffe.Parameter(name, annotation=field.annotation, kind=kind, default=field.value)
            for name, field in cls.members.items()
            if isinstance(field, griffe.Attribute)
        ]
        itself = griffe.Parameter("self", kind=kind)
        cls.set_member("__init__", griffe.Function("__init__", parameters=griffe.Parameters(itself, *fields)))


def as_markdown(text: str) -> str:
    """A docstring's text with Markdown's marks."""
    text = _ROLE.sub(r"`\1`", _BLOCK.sub("", text))
    text = _EXAMPLE.sub(lambda found: f"```python\n{found[0].rstrip()}\n```\n", text)
    lines = text.splitlines()
    rules = [i for i, line in enumerate(lines) if _TABLE_RULE.match(line)]
    if len(rules) != 2:
        return text
    first, last = rules
    found = _TABLE_RULE.match(lines[first])
    width = len(found.group(1)) if found else 0
    rows = [(line[:width].strip(), line[width:].strip()) for line in lines[first + 1 : last]]
    table = ["| | |", "|---|---|", *(f"| {a} | {b} |" for a, b in rows)]
    return "\n".join([*lines[:first], *table, *lines[last + 1 :]])
