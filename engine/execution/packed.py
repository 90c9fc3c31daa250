"""Sequences that travel to tasks in pieces, of which a task unpacks only the one that it looks at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar, overload

T = TypeVar("T")

_AT_ONCE: Final = 64


class Packed(Sequence[T]):
    """Items that are packed ``at_once`` by ``at_once`` on their way to tasks.

    Every task gets the whole sequence and needs one item: with a thousand splits, a thousand tasks would otherwise
    each make a thousand objects.

    >>> from pyspark.serializers import CloudPickleSerializer as Serializer
    >>> far = Serializer().loads(Serializer().dumps(Packed(range(1000))))
    >>> len(far), far[700], far[-1], far[998:]
    (1000, 700, 999, (998, 999))
    """

    def __init__(self, items: Iterable[T], at_once: int = _AT_ONCE) -> None:
        found = tuple(items)
        self._count = len(found)
        self._at_once = at_once
        self._pieces: list[tuple[T, ...] | bytes] = [found[i : i + at_once] for i in range(0, len(found), at_once)]

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...

    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        numbers = range(self._count)[index]
        if isinstance(numbers, range):
            return tuple(self[i] for i in numbers)
        at, place = divmod(numbers, self._at_once)
        return self._piece(at)[place]

    def _piece(self, at: int) -> tuple[T, ...]:
        piece = self._pieces[at]
        if isinstance(piece, bytes):
            piece = self._pieces[at] = tuple(spark_serializer().loads(piece))
        return piece

    def __getstate__(self) -> dict[str, Any]:
        pieces = [piece if isinstance(piece, bytes) else spark_serializer().dumps(piece) for piece in self._pieces]
        return {"pieces": pieces, "count": self._count, "at_once": self._at_once}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._pieces, self._count, self._at_once = state["pieces"], state["count"], state["at_once"]


def spark_serializer() -> Any:
    """The pickler with which Spark packs the functions of its own stages."""
    from pyspark.serializers import CloudPickleSerializer

    return CloudPickleSerializer()  # type: ignore[no-untyped-call]
