"""Error policies: what to do with a batch or row for which a column's function raises."""

from __future__ import annotations

import contextlib
import re
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any, Final, Literal, Protocol, TypeAlias

import pyarrow as pa

from ..errors import SkipThresholdExceededError, UsageError
from .computing import ROW

Backoff = Literal["exponential", "fixed", "linear"]

_FIRST_DELAY: Final = 0.1
_LONGEST_DELAY: Final = 30.0


class Policy:
    """Matches errors of these classes; with ``match``, only errors whose text has a match.

    Without a class, it matches every ``Exception`` except ``MemoryError``, which rarely depends on a row; name that
    class to match it. ``KeyboardInterrupt`` and ``SystemExit`` are never matched.
    """

    def __init__(self, *exceptions: type[BaseException], match: str | None = None) -> None:
        for kind in exceptions:
            if not (isinstance(kind, type) and issubclass(kind, Exception)):
                raise TypeError(f"{type(self).__name__} needs exception classes, not {kind!r}")
        if match is not None and not isinstance(match, str):
            raise TypeError(f"{type(self).__name__}: match must be a regular expression as text, not {match!r}")
        try:
            re.compile(match or "")
        except re.error as error:
            raise UsageError(f"match={match!r} is not a regular expression: {error}") from error
        self.exceptions = exceptions
        self.match = match

    def matches(self, error: BaseException) -> bool:
        """Return whether the policy is for ``error``."""
        if not isinstance(error, Exception):
            return False
        is_named = isinstance(error, self.exceptions)
        if not is_named and (self.exceptions or isinstance(error, MemoryError)):
            return False
        return self.match is None or re.search(self.match, str(error)) is not None

    def __repr__(self) -> str:
        said = [kind.__name__ for kind in self.exceptions]
        said += [
            f"{name}={value!r}" for name, value in vars(self).items() if name != "exceptions" and value is not None
        ]
        return f"{type(self).__name__}({', '.join(said)})"


class Retry(Policy):
    """Calls the function again for the batch, up to ``max_attempts`` times in all; then the run fails.

    The first wait between attempts is 0.1 s. Each later wait is twice as long (``exponential``), equally long
    (``fixed``), or 0.1 s longer (``linear``), up to 30 s.
    """

    def __init__(
        self,
        *exceptions: type[BaseException],
        match: str | None = None,
        max_attempts: int = 3,
        backoff: Backoff = "exponential",
    ) -> None:
        super().__init__(*exceptions, match=match)
        if backoff not in ("exponential", "fixed", "linear"):
            raise UsageError(f"backoff must be 'exponential', 'fixed' or 'linear', not {backoff!r}")
        if not isinstance(max_attempts, int) or max_attempts < 1:
            raise UsageError(f"max_attempts must be at least 1, not {max_attempts!r}")
        self.max_attempts = max_attempts
        self.backoff = backoff

    def delay(self, attempt: int) -> float:
        """The seconds to wait after an attempt. Attempts are numbered from 1."""
        factor = {"exponential": 2.0 ** min(attempt - 1, 16), "fixed": 1.0, "linear": float(attempt)}[self.backoff]
        return min(_FIRST_DELAY * factor, _LONGEST_DELAY)


class Skip(Policy):
    """Leaves rows null if the function fails for them; the other rows get their values.

    Failing rows are found by halving the batch. So the function is called again for neighbouring rows, and repeats its
    side effects. The run fails if more than ``max_skip_count`` rows, or more than the fraction ``max_skip_fraction`` of
    all rows, are skipped.
    """

    def __init__(
        self,
        *exceptions: type[BaseException],
        match: str | None = None,
        max_skip_count: int | None = None,
        max_skip_fraction: float | None = None,
    ) -> None:
        super().__init__(*exceptions, match=match)
        if max_skip_count is not None and not (isinstance(max_skip_count, int) and max_skip_count >= 0):
            raise UsageError(f"max_skip_count must be a number of rows, not {max_skip_count!r}")
        if max_skip_fraction is not None and not 0 <= max_skip_fraction <= 1:
            raise UsageError(f"max_skip_fraction must be between 0 and 1, not {max_skip_fraction!r}")
        self.max_skip_count = max_skip_count
        self.max_skip_fraction = max_skip_fraction

    def exceeded(self, skipped: int, total: int | None) -> bool:
        """Return whether ``skipped`` rows of ``total`` (None: unknown) are more than the policy allows."""
        if self.max_skip_count is not None and skipped > self.max_skip_count:
            return True
        return self.max_skip_fraction is not None and total is not None and skipped > self.max_skip_fraction * total


class Fail(Policy):
    """Fails the run, as if there were no policy. Use it before a policy that would match the same errors."""


Policies: TypeAlias = Policy | Sequence[Policy]


def policies_of(given: Policies | None) -> tuple[Policy, ...]:
    """The policies that an argument ``on_error`` names, in order."""
    if given is None:
        return ()
    policies = (given,) if isinstance(given, Policy) else tuple(given)
    for policy in policies:
        if not isinstance(policy, Policy):
            raise TypeError(f"on_error must be a list of Retry, Skip and Fail, but has {policy!r}")
    return policies


def policy_for(policies: Iterable[Policy], error: BaseException) -> tuple[int, Policy] | None:
    """Return the first of ``policies`` that matches ``error``, with its index, or None if the run fails."""
    return next(((at, policy) for at, policy in enumerate(policies) if policy.matches(error)), None)


def check_skipped(policies: Sequence[Policy], skipped: Mapping[int, int], total: int | None) -> None:
    """Raise ``SkipThresholdExceededError`` if more of ``total`` rows were skipped than a policy allows.

    ``skipped`` counts the rows by the index of the policy. If the total is unknown, fractions are not checked.
    """
    for at, count in sorted(skipped.items()):
        policy = policies[at]
        if isinstance(policy, Skip) and policy.exceeded(count, total):
            of_all = "" if total is None else f"of {total:,} "
            raise SkipThresholdExceededError(
                f"{count:,} {of_all}rows were skipped, which is more than {policy!r} allows",
                hint="Look at the errors of the job, fix the function, and run it again: computed values are kept.",
            )


def retry_transient(max_attempts: int = 3, backoff: Backoff = "exponential") -> list[Policy]:
    """Policies that retry transient errors: lost connections and timeouts."""
    return [Retry(ConnectionError, TimeoutError, InterruptedError, max_attempts=max_attempts, backoff=backoff)]


def retry_all(max_attempts: int = 3, backoff: Backoff = "exponential") -> list[Policy]:
    """Policies that retry every error."""
    return [Retry(max_attempts=max_attempts, backoff=backoff)]


def skip_on_error(max_skip_count: int | None = None, max_skip_fraction: float | None = None) -> list[Policy]:
    """Policies that leave failed rows null."""
    return [Skip(max_skip_count=max_skip_count, max_skip_fraction=max_skip_fraction)]


def fail_fast() -> list[Policy]:
    """Policies that fail the run with the first error, which also happens without policies."""
    return [Fail()]


_MOST_TEXT: Final = 4_000
_MOST_FRAMES: Final = 12
_ATTEMPTS: Final = "__chunkmill_attempts__"
ROW_NOTE: Final = "It is the row where _rowaddr = "
"""The prefix of an error's note about the table row for which a function failed."""


@dataclass(frozen=True, slots=True)
class RowFailure:
    """An error of a function, for the row at ``row_address``, or for a whole batch (None).

    It happened at ``attempt`` of ``max_attempts``, after the batch was halved ``bisect_depth`` times. ``policy`` is the
    index of the policy that skipped the row.
    """

    error_type: str
    error_message: str
    error_trace: str
    timestamp: datetime
    row_address: int | None = None
    batch_index: int | None = None
    attempt: int = 1
    max_attempts: int = 1
    bisect_depth: int = 0
    policy: int | None = None

    @classmethod
    def of(
        cls,
        error: BaseException,
        row_address: int | None = None,
        *,
        batch_index: int | None = None,
        policy: int | None = None,
    ) -> RowFailure:
        """Return the failure of ``error``, with the present time.

        The text and the traceback are cut to 4,000 characters each. Errors of :func:`guarded_compute` have attempts and
        a depth.
        """
        attempt, max_attempts, depth = getattr(error, _ATTEMPTS, (1, 1, 0))
        return cls(
            type(error).__qualname__,
            _message(error)[:_MOST_TEXT],
            _trace(error),
            datetime.now(UTC),
            row_address,
            batch_index,
            attempt,
            max_attempts,
            depth,
            policy,
        )

    def to_dict(self) -> dict[str, Any]:
        """The failure as plain JSON data; :meth:`from_dict` is the inverse."""
        return {**asdict(self), "timestamp": self.timestamp.isoformat()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RowFailure:
        """Return the failure from the result of :meth:`to_dict`. Raises ``ValueError`` for other data."""
        names = {field.name for field in fields(cls)}
        if not isinstance(data, Mapping) or data.keys() != names:
            raise ValueError("this is not a failure of a row")
        for name, value in data.items():
            if name in ("error_type", "error_message", "error_trace", "timestamp"):
                fits = isinstance(value, str)
            else:
                may_miss = name in ("row_address", "batch_index", "policy")
                fits = type(value) is int or (value is None and may_miss)
            if not fits:
                raise ValueError(f"{name} of a row failure cannot be {str(value)[:40]!r}")
        return cls(**{**data, "timestamp": datetime.fromisoformat(data["timestamp"])})


class _Guarded(Protocol):
    """A function with its error policies."""

    @property
    def policy(self) -> tuple[Policy, ...]: ...

    @property
    def data_type(self) -> pa.DataType: ...

    def compute(self, batch: pa.RecordBatch) -> pa.Array: ...


def guarded_compute(
    udf: _Guarded, batch: pa.RecordBatch, addresses: Sequence[int], *, sleep: Callable[[float], None] = time.sleep
) -> tuple[pa.Array, list[RowFailure]]:
    """Compute the column of a batch, and return it with a failure for each row that a policy left null.

    ``addresses`` are the addresses of the rows. The function is called for the whole batch. If it fails, the first
    matching policy applies. ``Retry`` calls the function again for the same rows, and finally raises the last error.
    ``Skip`` halves the rows down to single rows: if ``f`` of ``n`` rows fail, a function of batches is called at most
    ``1 + 2 f (1 + log2 n)`` times. ``Fail``, or no policy, raises the error. Errors of halves are matched with the
    policies again.

    Repeated calls repeat the function's side effects. The caller checks the number of skipped rows of all batches:
    :func:`check_skipped`.
    """
    return _span(udf, batch, addresses, sleep, 0)


def _span(
    udf: _Guarded, batch: pa.RecordBatch, addresses: Sequence[int], sleep: Callable[[float], None], depth: int
) -> tuple[pa.Array, list[RowFailure]]:
    attempt = 0
    while True:
        attempt += 1
        try:
            return udf.compute(batch), []
        except Exception as error:
            at, policy = policy_for(udf.policy, error) or (None, None)
            most = policy.max_attempts if isinstance(policy, Retry) else 1
            if isinstance(policy, Retry) and attempt < most:
                sleep(policy.delay(attempt))
                continue
            with contextlib.suppress(Exception):  # a class without room for attributes
                setattr(error, _ATTEMPTS, (attempt, max(attempt, most), depth))
            if not isinstance(policy, Skip) or not batch.num_rows:
                if isinstance(row := getattr(error, ROW, None), int) and row < len(addresses):
                    error.add_note(f"{ROW_NOTE}{addresses[row]}.")
                raise
            if batch.num_rows == 1:
                return pa.nulls(1, udf.data_type), [RowFailure.of(error, int(addresses[0]), policy=at)]
        half = batch.num_rows // 2
        first, failed = _span(udf, batch.slice(0, half), addresses[:half], sleep, depth + 1)
        second, more = _span(udf, batch.slice(half), addresses[half:], sleep, depth + 1)
        return pa.concat_arrays([first, second]), failed + more


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 (whatever the user's class does)
        return "an error without a text"


def _trace(error: BaseException) -> str:
    """Return the last frames of a traceback, which include the user's function."""
    try:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__, limit=-_MOST_FRAMES))
    except Exception:  # noqa: BLE001 (whatever the user's class does)
        return ""
    return text if len(text) <= _MOST_TEXT else "…" + text[1 - _MOST_TEXT :]
