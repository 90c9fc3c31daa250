"""Handles of registrations: what became of each file, as it becomes visible."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..errors import RegistrationError
from .requests import FileRequest


@dataclass(frozen=True, slots=True)
class SegmentRegistrationResult:
    """The outcome of one file: the id of its segment, or the ``error`` for which there is none."""

    uri: str
    segment_id: str | None
    error: str | None = None

    @property
    def is_success(self) -> bool:
        """Whether the layer is in the dataset."""
        return self.error is None

    @property
    def is_error(self) -> bool:
        """Whether nothing came of the file."""
        return self.error is not None


@dataclass(frozen=True, slots=True)
class RegistrationResult:
    """The outcome of a registration: the ids of the segments, in the order of the request."""

    segment_ids: list[str]


class Outcomes:
    """The outcomes so far of the files of a registration; filled by one thread, and waited for by others."""

    def __init__(self, requests: Sequence[FileRequest]) -> None:
        self.requests = requests
        self.cancelled = threading.Event()
        self._changed = threading.Condition()
        self._of: list[list[SegmentRegistrationResult] | None] = [None] * len(requests)
        self._order: list[SegmentRegistrationResult] = []
        self._left = len(requests)
        self._is_over = False
        self.is_transient = True
        """Whether all errors are such that trying again may help."""

    def tell(self, at: int, segments: Sequence[str], error: BaseException | str | None = None) -> None:
        """Say what became of the file ``at``: a result for each segment in it, or one for an error."""
        with self._changed:
            if self._of[at] is not None:
                return
            uri = self.requests[at].uri
            text = None if error is None else str(error)
            self.is_transient &= error is None or bool(getattr(error, "transient", False))
            found = [SegmentRegistrationResult(uri, s, text) for s in segments] or [
                SegmentRegistrationResult(uri, None, text)
            ]
            self._of[at] = found
            self._order += found
            self._left -= 1
            self._changed.notify_all()

    def end(self, error: BaseException | str) -> None:
        """Say that all is done and put away, and why nothing became of the files of which nothing was said."""
        for at in range(len(self.requests)):
            self.tell(at, (), error)
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def at(self, number: int, until: float | None) -> SegmentRegistrationResult | None:
        """Result ``number`` in the order in which they come; None when there is none. Raises ``TimeoutError``."""
        with self._changed:
            self._wait(lambda: len(self._order) > number or self._is_over, until)
            return self._order[number] if len(self._order) > number else None

    def all(self, until: float | None) -> list[SegmentRegistrationResult]:
        """All results, in the order of the request. Raises ``TimeoutError``."""
        return [result for found in self.by_file(until) for result in found]

    def by_file(self, until: float | None) -> list[list[SegmentRegistrationResult]]:
        """The results of each file, in the order of the request. Raises ``TimeoutError``."""
        with self._changed:
            self._wait(lambda: self._is_over, until)
            return [list(found or ()) for found in self._of]

    def _wait(self, ready: Callable[[], bool], until: float | None) -> None:
        if not self._changed.wait_for(ready, None if until is None else max(until - time.monotonic(), 0.0)):
            raise TimeoutError(f"{self._left} of {len(self.requests)} files were not registered in time; it goes on")


class RegistrationHandle:
    """A registration that runs. Nothing is lost with the handle: it goes on to its end."""

    def __init__(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes

    def iter_results(self, timeout_secs: float | None = None) -> Iterator[SegmentRegistrationResult]:
        """The outcomes of the files, each when its layer is visible, or has failed. Each call begins anew.

        A file with several recordings has a result for each.

        Raises
        ------
        TimeoutError
            Not all are done within ``timeout_secs`` seconds. The registration goes on.
        """
        until = _until(timeout_secs)
        number = 0
        while (result := self._outcomes.at(number, until)) is not None:
            yield result
            number += 1

    def wait(self, timeout_secs: float | None = None) -> RegistrationResult:
        """Wait until all files are registered. It may be called again.

        Raises
        ------
        ValueError
            Some failed; the message names each. The others are registered. It is a ``RegistrationError``, which is
            ``transient`` where trying again may help with each.
        TimeoutError
            Not all are done within ``timeout_secs`` seconds. The registration goes on.
        """
        results = self._outcomes.all(_until(timeout_secs))
        failed = [result.error for result in results if result.error is not None]
        if failed:
            text = "\n".join(("Registration failed.", "", "The following segments failed:", *failed))
            raise RegistrationError(text, transient=self._outcomes.is_transient)
        return RegistrationResult([result.segment_id for result in results if result.segment_id is not None])

    def results(self, timeout_secs: float | None = None) -> list[list[SegmentRegistrationResult]]:
        """The outcomes of each file, in the order of the request, once all are done.

        Raises
        ------
        TimeoutError
            Not all are done within ``timeout_secs`` seconds. The registration goes on.
        """
        return self._outcomes.by_file(_until(timeout_secs))

    def cancel(self) -> None:
        """Begin no more files. Those that are visible stay registered; the others fail, as ``cancelled``."""
        self._outcomes.cancelled.set()

    def __repr__(self) -> str:
        return f"RegistrationHandle({len(self._outcomes.requests)} files)"


def _until(timeout_secs: float | None) -> float | None:
    return None if timeout_secs is None else time.monotonic() + timeout_secs
