"""Columns that are filled together, and what gives their values: a function, or the source of a load."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..lance import Fragment
from .functions import UDF
from .policies import RowFailure, Skip, check_skipped, guarded_compute, policy_for
from .provenance import COMPUTED_BY, Provenance, inputs_token, provenance_of, token_of

Addresses = npt.NDArray[np.int64]
"""Addresses of rows: the fragment's number times 2**32, and the offset in it."""


@dataclass(frozen=True)
class FilledColumns(ABC):
    """Columns that are filled together, and what gives their values of which others. It pickles."""

    name: str
    fields: tuple[pa.Field, ...]
    inputs: tuple[str, ...]

    is_cheap: ClassVar[bool] = False
    """Whether values are found faster than they are written: then fragments are not cut, nor kept in parts."""
    keeps_others: ClassVar[bool] = False
    """Whether rows that are looked at may stay as they are."""

    @property
    @abstractmethod
    def token(self) -> str:
        """A text that stands for the giver of the values."""

    @property
    @abstractmethod
    def described(self) -> dict[str, str]:
        """The name and the version of what gives the values, for error records."""

    @abstractmethod
    def compute(
        self, batch: pa.RecordBatch, addresses: Addresses
    ) -> tuple[npt.NDArray[np.bool_] | None, pa.RecordBatch, Sequence[RowFailure]]:
        """The values of rows, and which of them have one (None: all).

        Raises what the function raises, unless its policy lets that pass: then a row is null, and has a failure.
        """

    @abstractmethod
    def state_of(self, fragment: Fragment) -> int:
        """Of what a fragment's values are, by the names of its files."""

    def check_skipped(self, skipped: Mapping[str, int], rows: int | None) -> None:
        """Raise ``SkipThresholdExceededError`` where more of ``rows`` (None: nobody knows how many) failed than may."""
        del skipped, rows  # where no function is called, none fails

    def died(self, error: Exception, address: int) -> tuple[RowFailure, bool]:
        """The failure of a row for which the process of a worker ended, and whether the row may stay null."""
        return RowFailure.of(error, address), False

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(field.name for field in self.fields)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns, without what their fields' metadata say."""
        return pa.schema([pa.field(field.name, field.type) for field in self.fields])

    @property
    def is_null(self) -> str:
        """The condition on rows that have no value."""
        return " OR ".join(f"{quoted(column)} IS NULL" for column in self.columns)

    def provenance(self, fragment: Fragment) -> Provenance:
        """The provenance of values that it gives in a fragment."""
        return Provenance(self.token, inputs_token(fragment.files_of(self.inputs)))


@dataclass(frozen=True)
class FunctionColumns(FilledColumns):
    """Columns that a function fills."""

    udf: UDF

    @cached_property
    def token(self) -> str:
        """The token of the function as it is used here."""
        return token_of(self.udf.name, self.udf.version, self.udf.inputs)

    @property
    def described(self) -> dict[str, str]:
        """The function's name and version."""
        return {"udf_name": self.udf.name, "udf_version": self.udf.version}

    def compute(self, batch: pa.RecordBatch, addresses: Addresses) -> tuple[None, pa.RecordBatch, Sequence[RowFailure]]:
        """The function's values, and the failures that its policy lets pass."""
        values, failures = guarded_compute(self.udf, batch, cast("Sequence[int]", addresses))
        columns = values.flatten() if self.udf.outputs is not None else [values]
        return None, pa.RecordBatch.from_arrays(columns, schema=self.schema), failures

    def died(self, error: Exception, address: int) -> tuple[RowFailure, bool]:
        """The failure of a row, which may stay null where the policy for ``error`` is to skip."""
        at, policy = policy_for(self.udf.policy, error) or (None, None)
        return RowFailure.of(error, address, policy=at), isinstance(policy, Skip)

    def check_skipped(self, skipped: Mapping[str, int], rows: int | None) -> None:
        """Hold the rows that failed, by their policies, against what these allow."""
        check_skipped(self.udf.policy, {int(at): count for at, count in skipped.items()}, rows)

    def state_of(self, fragment: Fragment) -> int:
        """Of what a fragment's values are."""
        files = set(fragment.files_of(self.columns))
        if files == {""}:
            return NEVER
        wanted = self.provenance(fragment)
        found = {provenance_of(file) for file in files}
        if any(one is not None and one.function != wanted.function for one in found):
            return OTHER_FUNCTION
        if None in found:
            before = (self.fields[0].metadata or {}).get(COMPUTED_BY.encode())
            if before is not None and before.decode() != wanted.function:
                return OTHER_FUNCTION
            # An input that has a file of its own got it after the file that has both.
            newer = {file for file in fragment.files_of(self.inputs) if provenance_of(file) is not None}
            return OTHER_INPUTS if newer - files else KNOWN
        return KNOWN if found == {wanted} else OTHER_INPUTS


NEVER, KNOWN, OTHER_FUNCTION, OTHER_INPUTS, ALL = range(5)
"""What a fragment's values are: none; those of the function; of another; of other inputs; to be filled in any case."""


def has_value(columns: Sequence[str]) -> str:
    """The condition on rows that have a value in any of the columns."""
    return " OR ".join(f"{quoted(column)} IS NOT NULL" for column in columns)


def quoted(column: str) -> str:
    """A column's name as SQL takes it, whatever words it knows.

    >>> quoted("null"), quoted("it's /a:b")
    ('`null`', "`it's /a:b`")
    """
    return f"`{column}`"


def read_easily(condition: str) -> str:
    """A condition without the quotes that few names need.

    >>> read_easily(f"{quoted('a')} IS NULL OR {quoted('a b')} IS NULL")
    'a IS NULL OR `a b` IS NULL'
    """
    return re.sub("`([a-z_][a-z0-9_]*)`", r"\1", condition)
