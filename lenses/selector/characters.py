"""Which characters names in queries are made of, by Unicode's properties."""

from __future__ import annotations

import unicodedata

_ALPHABETIC_MARKS = frozenset({"Nl", "Mc"})
_ALPHANUMERIC_MARKS = frozenset({"Nl", "No", "Mc"})


def is_alphabetic(c: str) -> bool:
    """Whether ``c`` is a letter: letters, letter numbers, spacing vowel signs."""
    return c.isalpha() or unicodedata.category(c) in _ALPHABETIC_MARKS


def is_alphanumeric(c: str) -> bool:
    """Whether ``c`` is a letter or any kind of number."""
    return c.isalnum() or unicodedata.category(c) in _ALPHANUMERIC_MARKS


def is_name_part(c: str) -> bool:
    """Whether ``c`` can go on a field name or an identifier."""
    return c in "-_" or is_alphanumeric(c)


def is_field_name(name: str) -> bool:
    """Whether ``name`` can be written without quotes.

    >>> is_field_name("angle-x"), is_field_name("_x"), is_field_name("odd name")
    (True, False, False)
    """
    return name != "" and is_alphabetic(name[0]) and all(map(is_name_part, name))
