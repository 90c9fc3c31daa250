"""Policies of errors: what becomes of a batch when the function of a column raises something."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from ..errors import SkipThresholdExceededError, UsageError

Backoff = Literal["exponential", "fixed", "linear"]

_FIRST_DELAY: Final = 0.1
_LONGEST_DELAY: Final = 30.0


class Policy:
    """Matches errors of these classes, with ``match`` only those in whose text it is found.

    Without a class it is every ``Exception`` but ``MemoryError``, which says nothing of a row; named, that is matched
    too. What ends a process, ``KeyboardInterrupt`` and ``SystemExit``, never is.
    """

    def __init__(self, *exceptions: type[BaseException], match: str | None = None) -> None:
        for kind in exceptions:
            if not (isinstance(kind, type) and issubclass(kind, Exception)):
                raise TypeError(f"{type(self).__name__} wants classes of exceptions, not {kind!r}")
        if match is not None and not isinstance(match, str):
            raise TypeError(f"{type(self).__name__}: match is a regular expression as text, not {match!r}")
        try:
            re.compile(match or "")
        except re.error as error:
            raise UsageError(f"match={match!r} is no regular expression: {error}") from error
        self.exceptions = exceptions
        self.match = match

    def matches(self, error: BaseException) -> bool:
        """Whether the policy is for ``error``."""
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

    Between attempts it waits 0.1 s, each time twice as long (``exponential``), as long (``fixed``), or 0.1 s longer
    (``linear``), and 30 s at most.
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
            raise UsageError(f"backoff is 'exponential', 'fixed' or 'linear', not {backoff!r}")
        if not isinstance(max_attempts, int) or max_attempts < 1:
            raise UsageError(f"max_attempts is a number from 1 on, not {max_attempts!r}")
        self.max_attempts = max_attempts
        self.backoff = backoff

    def delay(self, attempt: int) -> float:
        """Seconds to wait after the attempt of this number, which counts from 1."""
        factor = {"exponential": 2.0 ** min(attempt - 1, 16), "fixed": 1.0, "linear": float(attempt)}[self.backoff]
        return min(_FIRST_DELAY * factor, _LONGEST_DELAY)


class Skip(Policy):
    """Leaves rows null for which the function fails, and the others as they are.

    The rows are found by halving the batch, so that the function is called again for rows beside them: one with effects
    outside of itself has them more than once. The run fails where more than ``max_skip_count`` rows, or more than the
    fraction ``max_skip_fraction`` of all, are skipped.
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
            raise UsageError(f"max_skip_count is a number of rows, not {max_skip_count!r}")
        if max_skip_fraction is not None and not 0 <= max_skip_fraction <= 1:
            raise UsageError(f"max_skip_fraction is between 0 and 1, not {max_skip_fraction!r}")
        self.max_skip_count = max_skip_count
        self.max_skip_fraction = max_skip_fraction

    def exceeded(self, skipped: int, total: int) -> bool:
        """Whether ``skipped`` rows of ``total`` are more than it allows."""
        if self.max_skip_count is not None and skipped > self.max_skip_count:
            return True
        return self.max_skip_fraction is not None and skipped > self.max_skip_fraction * total


class Fail(Policy):
    """Fails the run, as it does without a policy: for errors that a policy behind it would match."""


Policies: TypeAlias = Policy | Sequence[Policy]


def policies_of(given: Policies | None) -> tuple[Policy, ...]:
    """The policies that an argument ``on_error`` names, in order."""
    if given is None:
        return ()
    policies = (given,) if isinstance(given, Policy) else tuple(given)
    for policy in policies:
        if not isinstance(policy, Policy):
            raise TypeError(f"on_error is a list of Retry, Skip and Fail, and has {policy!r}")
    return policies


def policy_for(policies: Iterable[Policy], error: BaseException) -> tuple[int, Policy] | None:
    """The first of ``policies`` that matches ``error``, with its place; None where that fails the run."""
    return next(((at, policy) for at, policy in enumerate(policies) if policy.matches(error)), None)


def check_skipped(policies: Sequence[Policy], skipped: Mapping[int, int], total: int) -> None:
    """Raise ``SkipThresholdExceededError`` where a policy skipped more of ``total`` rows than it allows.

    ``skipped`` counts the rows by the place of the policy.
    """
    for at, count in sorted(skipped.items()):
        policy = policies[at]
        if isinstance(policy, Skip) and policy.exceeded(count, total):
            raise SkipThresholdExceededError(
                f"{count:,} of {total:,} rows were skipped, which is more than {policy!r} allows",
                hint="Look at the errors of the job, mend the function, and run it again: what was computed is kept.",
            )


def retry_transient(max_attempts: int = 3, backoff: Backoff = "exponential") -> list[Policy]:
    """Policies that try again what may pass: lost connections, and what took too long."""
    return [Retry(ConnectionError, TimeoutError, InterruptedError, max_attempts=max_attempts, backoff=backoff)]


def retry_all(max_attempts: int = 3, backoff: Backoff = "exponential") -> list[Policy]:
    """Policies that try again whatever fails."""
    return [Retry(max_attempts=max_attempts, backoff=backoff)]


def skip_on_error(max_skip_count: int | None = None, max_skip_fraction: float | None = None) -> list[Policy]:
    """Policies that leave rows null for which the function fails."""
    return [Skip(max_skip_count=max_skip_count, max_skip_fraction=max_skip_fraction)]


def fail_fast() -> list[Policy]:
    """Policies that fail the run with the first error, as without any."""
    return [Fail()]
