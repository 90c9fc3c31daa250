"""Provenance of a column's values, said by the name of the file that has them.

A file of a computed column is called ``<function><inputs>-<job><random>.lance``: 12 hexadecimal digits of what stands
for the function, 12 of the files that its inputs had in that fragment, 16 of the job that wrote it, and 16 at random. A
version names its files, so what is out of date is known without a look into any, and is told in the very commit that
brings the values in. Zeros stand for a function, or for files, that not all of its values are of; an ``s`` behind them
says that it keeps stale values, of rows that were changed since they were computed.

Where Lance wrote a column itself, as a compaction does, its file has another name. Then the field's metadata say of
which function all values are that are not in files named so, or that they are of several.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import uuid4

from ..rrd import digest_of

COMPUTED_BY: Final = "virtual_column.computed_by"
"""The entry of a field's metadata with the token of the function that gave the values in files of other names."""

SEVERAL: Final = "several"
"""What that entry says where they may be of several functions, or of inputs that are out of date."""

_DIGITS: Final = 12
_NAME: Final = re.compile(rf"([0-9a-f]{{{_DIGITS}}})([0-9a-f]{{{_DIGITS}}})(s?)-([0-9a-f]{{16}})[0-9a-f]{{16}}\.lance")
_NOT_ALL: Final = "0" * _DIGITS


class Provenance(NamedTuple):
    """The tokens of a function and of the files of its inputs."""

    function: str
    inputs: str

    def file_name(self, job: str, *, keeps_stale: bool = False) -> str:
        """The name of a new file with such values, which a job writes."""
        return f"{self.function}{self.inputs}{'s' * keeps_stale}-{job_digits(job)}{uuid4().hex[:16]}.lance"

    def beside(self, *, function: bool = False, inputs: bool = False) -> Provenance:
        """The same where values of another function, or of other inputs, are kept beside such."""
        return Provenance(_NOT_ALL if function else self.function, _NOT_ALL if inputs else self.inputs)


def provenance_of(file: str) -> Provenance | None:
    """The provenance that the name of a file says; None for one that was not named so.

    >>> provenance_of(Provenance("a" * 12, "b" * 12).file_name("job"))
    Provenance(function='aaaaaaaaaaaa', inputs='bbbbbbbbbbbb')
    >>> provenance_of("1000110100001010111110101a0e47c9b8c6e4d61b7d0b4ff2.lance") is None
    True
    """
    found = _NAME.fullmatch(file)
    return None if found is None else Provenance(found[1], found[2])


def keeps_stale(file: str) -> bool:
    """Whether the name of a file says that there are stale values among those in it.

    >>> keeps_stale(Provenance("a" * 12, "b" * 12).file_name("job", keeps_stale=True))
    True
    """
    found = _NAME.fullmatch(file)
    return found is not None and found[3] == "s"


def job_digits(job: str) -> str:
    """The digits by which names of files tell of a job."""
    return digest_of(job.encode()).hex()[:16]


def job_of(file: str) -> str | None:
    """The digits of the job that wrote a file; None for one that is none of a column's.

    >>> job_of(Provenance("a" * 12, "b" * 12).file_name("job")) == job_digits("job")
    True
    """
    found = _NAME.fullmatch(file)
    return None if found is None else found[4]


def token_of(*parts: object) -> str:
    """The token of anything that JSON has."""
    return digest_of(json.dumps(parts, sort_keys=True).encode()).hex()[:_DIGITS]


def inputs_token(files: Sequence[str]) -> str:
    """The token of the files that the inputs of a function have in a fragment."""
    return token_of(sorted(set(files)))
