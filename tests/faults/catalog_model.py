"""What operations on a catalog must have done: replayed in the order of the versions that they published."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

ENTRIES: Final = "entries"
"""The log of the catalog's entries, as a place."""

UNKNOWN: Final = "unknown "
"""What the operation of a commit begins with of which nobody told its process whether it came through."""

Layers = dict[tuple[str, str], str]
"""What is in a store: for each segment and layer the name of what was registered or ingested."""
Names = dict[str, tuple[str, str | None]]
"""What is in a catalog: for each name the id, and the default blueprint."""


@dataclass
class Done:
    """One operation of one process, and what became of it.

    ``commits`` are the versions that it published: place, number, operation. ``windows`` has, of each place, the
    newest version before it began and after it ended. ``error`` is the class of the error that it got, if any.
    """

    what: str
    arguments: dict[str, Any]
    commits: list[tuple[str, int, str]] = field(default_factory=list)
    windows: dict[str, tuple[int, int]] = field(default_factory=dict)
    result: Any = None
    error: str | None = None
    transient: bool = False
    text: str = ""

    def at(self, place: str) -> list[int]:
        """The numbers of the versions of a place that it published, upkeep left out."""
        kept = ("compact", "vacuum")
        return [number for where, number, operation in self.commits if where == place and operation not in kept]

    def __str__(self) -> str:
        told = f"{self.error}: {self.text}" if self.error else self.result
        return f"{self.what} {self.arguments} -> {told}; versions {self.commits}, between {self.windows}"


class ContradictionError(Exception):
    """No serial order explains what an operation did."""


def registered(base: Layers, arguments: Mapping[str, Any]) -> tuple[Layers, list[bool]]:
    """What is there after a registration, and which of its files became a layer, or were one that stays."""
    after, well = dict(base), list[bool]()
    for segment, name in arguments["files"]:
        key = segment, arguments["layer"]
        if key in base and arguments["on_duplicate"] == "skip":
            well.append(True)
            continue
        kinds = {is_odd(other) for at, other in after.items() if at != key}
        fits = kinds <= {is_odd(name), None} and not (key in base and arguments["on_duplicate"] == "error")
        well.append(fits)
        if fits:
            after[key] = name
    return after, well


def is_odd(name: str) -> bool | None:
    """Whether the values in a file have another type than most; None where they are of another column."""
    return None if name.startswith(("landed", "look")) else name.endswith("odd")


def unregistered(base: Layers, arguments: Mapping[str, Any]) -> Layers:
    """What is there after layers were dropped."""
    segments, layers = arguments["segments"], arguments["layers"]
    return {
        key: name
        for key, name in base.items()
        if (segments and key[0] not in segments) or (layers and key[1] not in layers)
    }


def after_entry(before: Names, done: Done) -> Names:
    """The entries after a change. Raises ``ContradictionError`` where it was none that these allow."""
    names, arguments = dict(before), done.arguments
    id_ = arguments.get("id")
    name = next((known for known, (other, _) in names.items() if other == id_), None)
    if done.what == "create":
        if arguments["name"] in names:
            raise ContradictionError("the name was taken")
        names[arguments["name"]] = done.result, None
        return names
    if name is None:
        raise ContradictionError("the entry was deleted")
    _, default = names.pop(name)
    if done.what == "rename":
        if arguments["name"] in names:
            raise ContradictionError("the name was taken")
        names[arguments["name"]] = id_, default
    elif done.what in ("default", "blueprint"):
        names[name] = id_, arguments["blueprint"]
    elif done.what != "delete":
        raise ContradictionError("it changes no entries")
    return names


def after_store(before: Layers, done: Done) -> Layers:
    """The layers after a commit to a store. Raises as :func:`after_entry` does."""
    if done.what in ("register", "blueprint"):
        after, well = registered(before, done.arguments)
        told = done.result or [None] * len(well)  # none, where a blueprint was registered, and then not set as default
        if well != [error is None for error in told]:
            raise ContradictionError(f"of its files these should have become layers: {well}")
        return after
    if done.what == "unregister":
        after = unregistered(before, done.arguments)
        if after == before:
            raise ContradictionError("nothing was there to be dropped")
        return after
    if done.what == "ingest":
        return {**before, (done.arguments["segment"], "base"): done.arguments["name"]}
    raise ContradictionError("it changes no layers")


class Replay:
    """All states of a catalog and its stores, one after each version."""

    def __init__(self, log: Sequence[Done]) -> None:
        self._log = log
        self.wrong: list[str] = []
        self.names: list[Names] = self._states(ENTRIES, after_entry)
        places = sorted({place for done in log for place, _, _ in done.commits} - {ENTRIES})
        self.stores: dict[str, list[Layers]] = {place: self._states(place, after_store) for place in places}

    def _states(self, place: str, after: Callable[[Any, Done], Any]) -> list[Any]:
        """The states of a place, from its beginning on."""
        every = [(n, at, what) for at, done in enumerate(self._log) for p, n, what in done.commits if p == place]
        sure = {number for number, _, what in every if not what.startswith(UNKNOWN)}
        order = sorted(one for one in every if one[0] not in sure or not one[2].startswith(UNKNOWN))
        if [number for number, _, _ in order] != list(range(1, len(order) + 1)):
            self.wrong.append(f"the versions of {place} are {[number for number, _, _ in order]}")
        states: list[Any] = [{}]
        for _, at, operation in order:
            state, done = states[-1], self._log[at]
            if operation.startswith(UNKNOWN):
                done = replace(done, result=None)
            try:
                states.append(state if operation.endswith(("compact", "vacuum")) else after(state, done))
            except ContradictionError as error:
                states.append(state)
                self.wrong.append(f"{error}: {done}; there was {state}")
        return states

    def seen(self, done: Done, place: str) -> Iterator[Any]:
        """The states of a place that an operation may have seen."""
        first, last = done.windows[place]
        states = self.names if place == ENTRIES else self.stores.get(place, [{}])
        return iter(states[first : last + 1])

    def judged(self) -> list[str]:
        """All that no order explains."""
        return [*self.wrong, *(f"unexplained: {done}" for done in self._log if not self._is_explained(done))]

    def _is_explained(self, done: Done) -> bool:
        if any(operation.startswith(UNKNOWN) for _, _, operation in done.commits):
            return done.transient
        if done.error is not None:
            return _is_right(done) and self._is_loser(done)
        if done.transient:
            return False
        if done.what == "create":
            return bool(done.commits) or any(
                done.arguments["exist_ok"] and names.get(done.arguments["name"], ("",))[0] == done.result
                for names in self.seen(done, ENTRIES)
            )
        if done.what == "list":
            found = {name: tuple(row) for name, row in done.result.items()}
            return any(names == found for names in self.seen(done, ENTRIES))
        place = done.arguments.get("place", "")
        if done.what in ("manifest", "read"):
            found = {(segment, layer): name for segment, layer, name in done.result}
            return any(layers == found for layers in self.seen(done, place))
        if done.what in ("register", "unregister") and not done.at(place):
            return any(_changes_nothing(layers, done) for layers in self.seen(done, place))
        return True

    def _is_loser(self, done: Done) -> bool:
        """Whether an error says what was true while the operation ran."""
        arguments, place = done.arguments, done.arguments.get("place", "")
        id_, name = arguments.get("id"), arguments.get("name", "")
        entries = list(self.seen(done, ENTRIES))
        if done.error == "NotFoundError":
            gone = any(all(row[0] != id_ for row in names.values()) for names in entries)
            unknown = done.what == "get" and any(name not in names for names in entries)
            if done.what == "default":
                wanted = arguments["blueprint"], "base"
                unknown = any(wanted not in layers for layers in self.seen(done, place))
            return unknown or (done.what != "get" and gone)
        if done.what == "rows":
            return done.transient and done.error in ("WriteError", "JobFailedError", "CommitUnknownError")
        if done.error == "AlreadyExistsError" and done.what in ("create", "rename"):
            return any(name in names for names in entries)
        if done.error == "AlreadyExistsError":
            keys = [(segment, arguments["layer"]) for segment, _ in arguments["files"]]
            return any(key in layers for layers in self.seen(done, place) for key in keys)
        return done.error == "WriteError" and done.what in ("compact", "vacuum") and not done.at(place)


def _is_right(done: Done) -> bool:
    """Whether an error says rightly that trying again helps, or not."""
    is_lease = done.error == "WriteError"  # nobody else is refused for a moment, rows of tables excepted
    return done.what == "rows" or done.transient == is_lease


def _changes_nothing(layers: Layers, done: Done) -> bool:
    if done.what == "unregister":
        return unregistered(layers, done.arguments) == layers
    after, well = registered(layers, done.arguments)
    return after == layers and well == [error is None for error in done.result]


def counted(log: Iterable[Done]) -> dict[str, int]:
    """How often each operation came out in each way."""
    found: dict[str, int] = {}
    for done in log:
        how = done.error or ("partly" if done.what == "register" and any(done.result) else "done")
        found[f"{done.what} {how}"] = found.get(f"{done.what} {how}", 0) + 1
    return dict(sorted(found.items()))
