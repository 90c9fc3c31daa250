"""Schemas ``ros2idl`` and ``omgidl``: OMG IDL parsed into the tree of message types.

The grammar is that of IDL 4.2 (OMG formal/2018-01-05), building blocks for core data types, extended data types and
annotations. A construct that cannot be read is an error only if a message uses it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from ....engine.limits import MAX_NESTING, MAX_SCHEMA_BYTES
from .columns import PRIMITIVES, TIME, MessageType, SchemaError, SequenceType, Text
from .ros_definitions import (
    KNOWN,
    Built,
    Fields,
    TypeBuilder,
    event_of,
    fixed_array,
    generated_around,
    known,
    struct_of,
)

_TOKEN: Final = re.compile(
    r"\s+|//[^\n]*|/\*.*?\*/|\#[^\n]*|"
    r"(?P<word>[A-Za-z_]\w*|\d(?:[\w.]|(?<=[eE])[+-])*|L?\"(?:[^\"\\\n]|\\.)*\"|L?'(?:[^'\\\n]|\\.)+'|::|<<|>>|.)",
    re.DOTALL | re.ASCII,
)
_INTEGER: Final = re.compile(r"0[xX][0-9a-fA-F]{1,16}|\d{1,20}")
_LEVELS: Final[tuple[dict[str, Callable[[int, int], int]], ...]] = (
    {"|": lambda a, b: a | b},
    {"^": lambda a, b: a ^ b},
    {"&": lambda a, b: a & b},
    {"<<": lambda a, b: a << min(b, 64) if b >= 0 else 0, ">>": lambda a, b: a >> b if b >= 0 else 0},
    {"+": lambda a, b: a + b, "-": lambda a, b: a - b},
    {"*": lambda a, b: a * b, "/": lambda a, b: a // b if b else 0, "%": lambda a, b: a % b if b else 0},
)
_SUMS: Final = 4
_MOST_WORDS: Final = 1 << 20
_LARGEST: Final = 1 << 64


class _Tokens:
    """A text's words, read one by one, without comments and preprocessor lines."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = self._find()
        self._place = 0
        self.next = ""
        self.step()

    def _find(self) -> Iterator[str]:
        count = 0
        for match in _TOKEN.finditer(self._text):
            if match["word"] is not None:
                count += 1
                if count > _MOST_WORDS:
                    raise SchemaError(f"it has more than {_MOST_WORDS:,} words")
                self._place = match.start()
                yield match["word"]

    def step(self) -> str:
        """Return the next word, and step over it; :attr:`next` is then the word after it, empty at the end."""
        word, self.next = self.next, next(self._words, "")
        return word

    def take(self, word: str) -> bool:
        """Step over ``word`` if it is next."""
        if self.next == word:
            self.step()
            return True
        return False

    def expect(self, *words: str) -> None:
        """Step over ``words``. Raises :class:`SchemaError` for other words."""
        for word in words:
            if not self.take(word):
                raise self.error(f"expected {word!r}")

    def name(self) -> str:
        """Step over a name."""
        if not (self.next[:1].isalpha() or self.next[:1] == "_"):
            raise self.error("expected a name")
        return self.step()

    def scoped(self) -> tuple[str, ...]:
        """Read ``a::b::c``; a leading ``::`` becomes an empty part."""
        parts = [""] if self.next == "::" else [self.name()]
        while self.take("::"):
            parts.append(self.name())
        return tuple(parts)

    def skip_group(self, opening: str, closing: str) -> None:
        """Step over brackets and their content, including inner brackets."""
        self.expect(opening)
        depth = 1
        while depth:
            if not self.next:
                raise self.error(f"expected {closing!r}")
            word = self.step()
            depth += (word == opening) - (word == closing)

    def error(self, what: str) -> SchemaError:
        """Return an error with the place in the text."""
        line = self._text.count("\n", 0, self._place) + 1
        return SchemaError(f"line {line}: {what}, found {self.next[:40]!r}" if self.next else f"it ends: {what}")

    def integer(self, value_of: Callable[[tuple[str, ...]], int | None], depth: int = 0) -> int:
        """Evaluate an integer expression; ``value_of`` knows the constants."""
        return self._operation(0, value_of, depth)

    def bound(self, value_of: Callable[[tuple[str, ...]], int | None]) -> int:
        """Do the same within angle brackets, where ``>>`` closes two brackets."""
        return self._operation(_SUMS, value_of, 0)

    def close_angle(self) -> None:
        """Step over ``>``, which may be the first half of ``>>``."""
        if self.next == ">>":
            self.next = ">"
        else:
            self.expect(">")

    def _operation(self, level: int, value_of: Callable[[tuple[str, ...]], int | None], depth: int) -> int:
        if level == len(_LEVELS):
            return self._operand(value_of, depth)
        value = self._operation(level + 1, value_of, depth)
        while self.next in _LEVELS[level]:
            operator = _LEVELS[level][self.step()]
            value = operator(value, self._operation(level + 1, value_of, depth))
            if abs(value) > _LARGEST:
                raise self.error("the number is too large")
        return value

    def _operand(self, value_of: Callable[[tuple[str, ...]], int | None], depth: int) -> int:
        if depth > MAX_NESTING:
            raise self.error("the expression is nested too deeply")
        if self.take("("):
            value = self.integer(value_of, depth + 1)
            self.expect(")")
            return value
        if self.next in ("-", "+", "~"):
            sign = self.step()
            value = self._operand(value_of, depth + 1)
            return {"-": -value, "+": value, "~": ~value}[sign]
        if _INTEGER.fullmatch(self.next):
            word = self.step()
            return int(word, 16 if word[1:2] in ("x", "X") else 8 if word[0] == "0" else 10) if word != "0" else 0
        value_or_none = value_of(self.scoped())
        if value_or_none is None:
            raise self.error("expected a whole number")
        return value_or_none


Name = tuple[str, ...]

_HEAD: Final = re.compile(r"^={3,}[ \t]*\r?\n?|^[ \t]*IDL:[ \t]*[\w/:]+[ \t]*\r?$", re.MULTILINE)
_OTHER_HEAD: Final = re.compile(r"^(?:MSG|SRV|ACTION):", re.MULTILINE)
_WORDS: Final = {
    "boolean": "bool",
    "octet": "uint8",
    "char": "uint8",
    "short": "int16",
    "long": "int32",
    "float": "float32",
    "double": "float64",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_UNSIGNED: Final = {"short": "uint16", "long": "uint32"}
_UNREADABLE: Final = ("wchar", "any", "Object", "fixed", "map", "ValueBase")
_CHANGES: Final = ("optional", "mutable", "external")
"""Annotations that change the layout of members in a message."""


@dataclass(frozen=True)
class Type:
    """A type as written: a primitive, ``string``, ``wstring``, ``sequence`` of another type, a ``name``, or ``other``
    for an unreadable ``word``. ``lengths`` are array dimensions.
    """

    kind: str
    word: str = ""
    name: Name = ()
    element: Type | None = None
    lengths: tuple[int, ...] = ()


@dataclass
class StructDecl:
    """A struct: its own members, which follow those of ``base``. ``why`` is the reason if it cannot be read."""

    scope: Name
    base: Name | None = None
    members: list[tuple[str, Type]] = field(default_factory=list)
    why: str = ""


@dataclass(frozen=True)
class AliasDecl:
    """A typedef, an enum or a bitmask: another name for ``type``."""

    scope: Name
    type: Type


Declaration = StructDecl | AliasDecl


def read_idl(schema_name: str, schema_data: bytes) -> dict[Name, Declaration]:
    """Return all types that the sections of ``schema_data`` declare. Raises :class:`SchemaError`."""
    if len(schema_data) > MAX_SCHEMA_BYTES:
        raise SchemaError(f"the definition of {schema_name} has {len(schema_data):,} bytes, too many")
    text = schema_data.decode("utf-8", errors="replace")
    if _OTHER_HEAD.search(text):
        raise SchemaError("it has sections that are not IDL")
    parser = _Parser(_Tokens(_HEAD.sub("", text)))
    parser.definitions((), "")
    return parser.declarations


class _Parser:
    def __init__(self, tokens: _Tokens) -> None:
        self._tokens = tokens
        self._constants: dict[Name, int] = {}
        self.declarations: dict[Name, Declaration] = {}

    def definitions(self, scope: Name, closing: str) -> None:
        """Read definitions up to ``closing``."""
        tokens = self._tokens
        if len(scope) > MAX_NESTING:
            raise SchemaError(f"its modules are nested deeper than {MAX_NESTING} levels")
        while tokens.next != closing:
            if tokens.take(";"):
                continue
            annotations = self._annotations()
            word = tokens.name()
            if word == "module":
                inner = (*scope, tokens.name())
                tokens.expect("{")
                self.definitions(inner, "}")
                tokens.expect("}")
            elif word == "struct":
                self._struct(scope, annotations)
            elif word == "typedef":
                self._typedef(scope)
            elif word == "const":
                self._constant(scope)
            elif word == "enum":
                self._enum(scope, annotations)
            elif word in ("bitmask", "union", "bitset", "interface", "valuetype", "exception", "native"):
                self._other(scope, word, annotations)
            else:
                raise tokens.error(f"{word!r} does not begin a definition")

    def _annotations(self) -> dict[str, int | None]:
        """Read annotations: their values by their last name, None for values that are not integers."""
        tokens, values = self._tokens, dict[str, int | None]()
        while tokens.take("@"):
            name = tokens.scoped()[-1]
            values[name] = None
            if tokens.next != "(":
                continue
            if name in ("bit_bound", "extensibility"):
                tokens.step()
                if name == "bit_bound":
                    if tokens.take("value"):
                        tokens.expect("=")
                    values[name] = tokens.integer(self._value_of)
                else:
                    values[tokens.scoped()[-1].lower()] = None
                tokens.expect(")")
            else:
                tokens.skip_group("(", ")")
        return values

    def _struct(self, scope: Name, annotations: dict[str, int | None]) -> None:
        tokens = self._tokens
        name = (*scope, tokens.name())
        if tokens.take(";"):  # a forward declaration
            return
        struct = StructDecl(scope)
        if tokens.take(":"):
            struct.base = tokens.scoped()
        struct.why = next((f"it is {word}" for word in _CHANGES if word in annotations), "")
        tokens.expect("{")
        seen: set[str] = set()
        while not tokens.take("}"):
            with_annotations = self._annotations()
            type_ = self._type(scope, 0)
            for member, lengths in self._declarators(scope):
                if member in seen:
                    raise SchemaError(f"{'::'.join(name)} has the member {member!r} twice")
                seen.add(member)
                struct.members.append((member, _array(type_, lengths)))
                changed = [word for word in _CHANGES if word in with_annotations]
                struct.why = struct.why or "".join(f"its member {member!r} is {word}" for word in changed[:1])
        self._add(name, struct)

    def _typedef(self, scope: Name) -> None:
        type_ = self._type(scope, 0)
        for name, lengths in self._declarators(scope):
            self._add((*scope, name), AliasDecl(scope, _array(type_, lengths)))

    def _constant(self, scope: Name) -> None:
        tokens = self._tokens
        self._type(scope, 0)
        name = (*scope, tokens.name())
        tokens.expect("=")
        first = tokens.next
        if (first[:1].isdigit() and "." not in first) or first in ("-", "+", "~", "(") or first[:1].isalpha():
            try:
                self._constants[name] = tokens.integer(lambda used: self._value_of(used, scope))
            except SchemaError:
                self._constants.pop(name, None)  # text, fractions and booleans, which cannot be array lengths
        while tokens.next not in (";", ""):
            tokens.step()

    def _enum(self, scope: Name, annotations: dict[str, int | None]) -> None:
        tokens = self._tokens
        name = (*scope, tokens.name())
        tokens.expect("{")
        number = 0
        while not tokens.take("}"):
            self._annotations()
            self._constants[*scope, tokens.name()] = number
            number += 1
            if not tokens.take(","):
                tokens.expect("}")
                break
        bits = annotations.get("bit_bound") or 32
        self._add(name, AliasDecl(scope, Type(f"int{_width(bits)}")))

    def _other(self, scope: Name, word: str, annotations: dict[str, int | None]) -> None:
        """Step over an unsupported definition; a bitmask is read as a number."""
        tokens = self._tokens
        if word == "union" and tokens.next == "switch":
            raise tokens.error("expected a name")
        name = (*scope, tokens.name())
        while tokens.next not in ("{", ";", ""):
            tokens.step()
        if tokens.next == "{":
            tokens.skip_group("{", "}")
        bits = annotations.get("bit_bound") or 32
        self._add(name, AliasDecl(scope, Type(f"uint{_width(bits)}" if word == "bitmask" else "other", word)))

    def _add(self, name: Name, declaration: Declaration) -> None:
        self.declarations.setdefault(name, declaration)

    def _declarators(self, scope: Name) -> list[tuple[str, tuple[int, ...]]]:
        """Read the names and dimensions in ``a, b[3][4];``."""
        tokens, declarators = self._tokens, []
        while True:
            name, lengths = tokens.name(), []
            while tokens.take("["):
                lengths.append(tokens.integer(lambda used: self._value_of(used, scope)))
                tokens.expect("]")
            if len(lengths) > MAX_NESTING:
                raise SchemaError(f"{name} has more than {MAX_NESTING} dimensions")
            declarators.append((name, tuple(lengths)))
            if not tokens.take(","):
                tokens.expect(";")
                return declarators

    def _type(self, scope: Name, depth: int) -> Type:
        tokens = self._tokens
        if depth > MAX_NESTING:
            raise SchemaError(f"its types nest deeper than {MAX_NESTING} levels")
        word = tokens.next
        if word == "::":
            return Type("name", name=tokens.scoped())
        tokens.name()
        if word == "unsigned" or (word == "long" and tokens.next in ("long", "double")):
            return self._of_two_words(word)
        if word in _WORDS:
            return Type(_WORDS[word])
        if word in ("string", "wstring"):
            self._bound(scope)
            return Type(word)
        if word == "sequence":
            return self._sequence(scope, depth)
        if word in _UNREADABLE:
            if tokens.next == "<":
                tokens.skip_group("<", ">")
            return Type("other", word)
        parts = [word]
        while tokens.take("::"):
            parts.append(tokens.name())
        return Type("name", name=tuple(parts))

    def _of_two_words(self, word: str) -> Type:
        """``unsigned …``, ``long long`` or ``long double``."""
        tokens = self._tokens
        second = tokens.name()
        if word == "long":
            return Type("int64") if second == "long" else Type("other", "long double")
        if second == "long" and tokens.take("long"):
            return Type("uint64")
        if second not in _UNSIGNED:
            raise tokens.error(f"unsigned {second} is not a type")
        return Type(_UNSIGNED[second])

    def _sequence(self, scope: Name, depth: int) -> Type:
        tokens = self._tokens
        tokens.expect("<")
        element = self._type(scope, depth + 1)
        if tokens.take(","):
            tokens.bound(lambda used: self._value_of(used, scope))
        tokens.close_angle()
        return Type("sequence", element=element)

    def _bound(self, scope: Name) -> None:
        tokens = self._tokens
        if tokens.take("<"):
            tokens.bound(lambda used: self._value_of(used, scope))
            tokens.close_angle()

    def _value_of(self, name: Name, scope: Name = ()) -> int | None:
        for full in candidates(name, scope):
            if full in self._constants:
                return self._constants[full]
        return None


def candidates(name: Name, scope: Name) -> list[Name]:
    """The full names that a name used in ``scope`` may stand for, the innermost first.

    >>> candidates(("Point",), ("geo", "msg"))
    [('geo', 'msg', 'Point'), ('geo', 'Point'), ('Point',)]
    """
    if name[0] == "":
        return [name[1:]]
    return [(*scope[:depth], *name) for depth in range(len(scope), -1, -1)]


def _array(type_: Type, lengths: tuple[int, ...]) -> Type:
    return Type(type_.kind, type_.word, type_.name, type_.element, lengths) if lengths else type_


def _width(bits: int) -> int:
    """The width of the smallest integer with at least ``bits`` bits."""
    return next((width for width in (8, 16, 32) if bits <= width), 64)


_BUILTINS: Final[dict[Name, MessageType]] = {
    ("builtin_interfaces", "msg", "Time"): TIME,
    ("builtin_interfaces", "msg", "Duration"): MessageType("builtin_interfaces/Duration", TIME.fields),
    **{(name.split("/")[0], "msg", name.split("/")[1]): known(name) for name in KNOWN},
}


def parse_idl(schema_name: str, schema_data: bytes) -> MessageType:
    """Return the struct that ``schema_data`` declares for ``schema_name``, ``pkg/msg/Type`` or ``pkg::msg::Type``.

    Modules, structs (with a base), typedefs, sequences and strings with bounds, arrays, constants, enums (as their
    number, int32) and bitmasks are read; annotations are skipped. Messages that ROS generates for the parts of a
    service or action are known by name. Unions, maps, ``wchar``, ``long double``, and members that are optional or in a
    mutable struct raise :class:`SchemaError`, as messages encode them differently.

    >>> text = b"module my { typedef double Three[3]; struct Point { Three at; string<8> name; }; };"
    >>> parse_idl("my/Point", text).arrow
    StructType(struct<at: list<item: double>, name: string>)
    """
    declared = read_idl(schema_name, schema_data)
    _generate(declared)
    name = tuple(part for part in schema_name.replace("/", "::").split("::") if part)
    if name not in declared:
        same = [full for full in declared if name and full[-1] == name[-1]]
        if len(same) != 1:
            raise SchemaError(f"it does not declare {schema_name}")
        name = same[0]
    node = _Resolver(declared).declared(name).node
    if not isinstance(node, MessageType):
        raise SchemaError(f"{schema_name} is not a struct")
    return node


def _generate(declared: dict[Name, Declaration]) -> None:
    """Declare the messages that ROS generates for the parts of services and actions, as IDL lacks them."""
    for name in list(declared):
        if name[-1].endswith("_Feedback"):
            action = name[-1].removesuffix("_Feedback")
            for suffix, fields in generated_around(action).items():
                _declare(declared, (*name[:-1], action + suffix), fields)
    for name in list(declared):
        if name[-1].endswith("_Request"):
            service = name[-1].removesuffix("_Request")
            _declare(declared, (*name[:-1], f"{service}_Event"), event_of(service))


def _declare(declared: dict[Name, Declaration], name: Name, fields: Fields) -> None:
    scope = name[:-1]
    members = [(field, _type_of(kind, array)) for field, kind, array in fields]
    declared.setdefault(name, StructDecl(scope, members=members))


def _type_of(kind: str, array: str | None) -> Type:
    package, _, rest = kind.partition("/")
    single = Type(kind) if kind in PRIMITIVES else Type("name", name=(package, "msg", rest) if rest else (kind,))
    return single if array is None else Type("sequence", element=single)


class _Resolver:
    """Turns declarations into types."""

    def __init__(self, declared: dict[Name, Declaration]) -> None:
        self._declared = declared
        self._types = TypeBuilder()

    def declared(self, name: Name) -> Built:
        """Return the type with this full name."""
        return self._types.once("::".join(name), lambda: self._build(name))

    def _build(self, name: Name) -> Built:
        declaration, text = self._declared[name], "::".join(name)
        if isinstance(declaration, StructDecl):
            return self._struct(declaration, text)
        return self._type(declaration.type, declaration.scope, text)

    def _struct(self, struct: StructDecl, text: str) -> Built:
        if struct.why:
            raise SchemaError(f"{text}: {struct.why}")
        base = None if struct.base is None else self._named(struct.base, struct.scope, text)
        if base is not None and not isinstance(base.node, MessageType):
            raise SchemaError(f"the base of {text} is not a struct")
        members = ((name, self._type(type_, struct.scope, f"{text}.{name}")) for name, type_ in struct.members)
        built = struct_of(text, members, base=base)
        assert isinstance(built.node, MessageType)
        if len({name for name, _ in built.node.fields}) < len(built.node.fields):
            raise SchemaError(f"{text} has a member twice")
        return built

    def _type(self, type_: Type, scope: Name, where: str) -> Built:
        built = self._single(type_, scope, where)
        for length in reversed(type_.lengths):
            built = Built(fixed_array(built.node, length, where), built.leaves, built.depth + 1)
        return built

    def _single(self, type_: Type, scope: Name, where: str) -> Built:
        if type_.kind in PRIMITIVES:
            return Built(PRIMITIVES[type_.kind])
        if type_.kind in ("string", "wstring"):
            return Built(Text(wide=type_.kind == "wstring"))
        if type_.kind == "sequence":
            assert type_.element is not None
            element = self._type(type_.element, scope, f"{where}[]")
            return Built(SequenceType(element.node), element.leaves, element.depth + 1)
        if type_.kind == "name":
            return self._named(type_.name, scope, where)
        raise SchemaError(f"{where}: the type {type_.word} is not supported")

    def _named(self, name: Name, scope: Name, where: str) -> Built:
        for full in candidates(name, scope):
            if full in self._declared:
                return self.declared(full)
            if full in _BUILTINS:
                return Built(_BUILTINS[full], 2, 2)
        raise SchemaError(f"{where}: {'::'.join(name)} is not declared")
