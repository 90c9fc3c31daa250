"""Lenses as one step of a pipeline; lenses and selectors on one chunk."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from typing import Any, Literal, Protocol, cast, get_args

from ..engine.chunk import Chunk, ChunkKind, Component, DescriptorLike, Fate, descriptor_of, is_property
from ..engine.errors import LensError, SelectorError
from ..engine.stream import Operator
from .compiled import ChunkWork, CompiledLenses, LensOutput, as_lenses, check_lenses, compile_lenses, joined
from .lens import Lens, OutputMode, checked_mode
from .outputs import assign, constant_output, derived_output, own_output, with_new_row_ids
from .selector import Selector, execute_per_row, pipeline_of, pipeline_text

_log = logging.getLogger(__name__)

OnError = Literal["raise", "skip", "quarantine"]
"""The ways to treat a chunk that a lens fails on: end the run, leave it out, or hand it over and leave it out."""

Quarantine = Callable[[Chunk, LensError], None]
"""Takes a chunk that failed, and why."""


class ContentPredicate(Protocol):
    """Says which entities lenses are for."""

    def matches(self, entity_path: str) -> bool:
        """Return whether the entity is one of them."""
        ...


class LensSet(Operator):
    """Any number of lenses, applied to one chunk at a time.

    A chunk gives, in this order: its own rows with the remaining and the new columns; then one chunk for each lens that
    makes chunks of its own, those on the same entity first. An unmatched chunk is passed on as it is, or dropped, by
    ``output_mode``. Entities outside of ``content`` are always passed on as they are. Recording properties
    (``/__properties``) match no lens. A stored chunk is matched by its header. A column of nulls only may be missing
    there, and is no match then.

    Selectors are compiled when the first chunk comes, once in each process. Lenses over one component share the common
    beginnings of their selectors. Can be pickled if the callables in its selectors can.

    Parameters
    ----------
    lenses
        One lens or any number.
    output_mode
        ``"drop_unmatched"``, ``"forward_unmatched"`` or ``"forward_all"``.
    content
        Entities the lenses are for; None: all.
    on_error
        ``"raise"`` a :class:`LensError` (a ``RuntimeError`` that begins with ``Lenses error:``), ``"skip"`` the chunk
        (logged), or hand it to ``quarantine`` and go on.
    quarantine
        Called with each chunk that failed, and its error. Runs where the chunk is.

    Raises
    ------
    ValueError
        A mode is unknown, or a lens has no output, or would overwrite its own input.
    TypeError
        An argument is not a lens, or has the wrong type.
    """

    has_fates = True

    __slots__ = ("_compiled", "content", "inputs", "lenses", "mode", "on_error", "quarantine")

    def __init__(
        self,
        lenses: Iterable[Lens] | Lens,
        output_mode: str = "drop_unmatched",
        *,
        content: ContentPredicate | None = None,
        on_error: str = "raise",
        quarantine: Quarantine | None = None,
    ) -> None:
        self.lenses = as_lenses(lenses)
        self.mode: OutputMode = checked_mode(output_mode)
        self.on_error = _on_error(on_error, quarantine)
        check_lenses(self.lenses)
        self.content = content
        self.quarantine = quarantine
        self.inputs = frozenset(lens.input_component for lens in self.lenses)
        self._compiled: CompiledLenses | None = None

    @property
    def compiled(self) -> CompiledLenses:
        """The lenses, ready to be applied."""
        if self._compiled is None:
            self._compiled = compile_lenses(self.lenses)
        return self._compiled

    def __call__(self, chunk: Chunk) -> Iterator[Chunk]:
        """Yield the chunks made of ``chunk``: all of them or, if a lens fails, none."""
        if self.content is not None and not self.content.matches(chunk.entity_path):
            yield chunk
            return
        try:
            chunks = self.apply(chunk, "Lenses error: ")
        except LensError as error:
            if self.on_error == "raise":
                raise
            if self.quarantine is not None:
                self.quarantine(chunk, error)
            else:
                _log.warning("left out %s: %s", chunk.id, error)
            return
        yield from chunks

    def apply(self, chunk: Chunk, prefix: str = "") -> list[Chunk]:
        """The chunks that come of ``chunk``, whatever ``content`` says.

        Raises :class:`LensError` with the errors of the first chunk that had any, ``prefix`` before them.
        """
        out = []
        for output in self.outputs(chunk):
            if output.errors:
                raise joined(output.errors, prefix)
            for count, text in output.remarks:
                _log.warning("%s, %s: %d rows %s", chunk.entity_path, chunk.id, count, text)
            if output.chunk is not None:
                out.append(output.chunk)
        return out

    def outputs(self, chunk: Chunk) -> Iterator[LensOutput]:
        """Each chunk with the errors on the way to it, in order; collisions of lenses come with the first."""
        components = self._matched(chunk)
        if not components:
            if self.mode != "drop_unmatched":
                yield LensOutput(chunk)
            return
        work = ChunkWork(chunk, chunk.data, self.compiled)
        assignment = assign(self.compiled, components, chunk.entity_path, chunk.id)
        own = own_output(work, assignment, self.mode)
        yield LensOutput(own.chunk, (*assignment.errors, *own.errors))
        made = list(assignment.merges)
        for lens in assignment.derived:
            output = derived_output(work, lens)
            yield output
            if output.chunk is not None:
                made.append(lens)
        for lens in made:
            if lens.constants:
                yield constant_output(work, lens)

    def _matched(self, chunk: Chunk) -> set[str]:
        """The inputs of lenses that the chunk has."""
        if is_property(chunk.entity_path):
            return set()
        columns = chunk.data.components if chunk.payload is None else chunk.header.components
        return {c.descriptor.component for c in columns} & self.inputs

    def fate(self, kind: ChunkKind) -> Fate:
        """Return the fate of a chunk, if it does not depend on the content."""
        if self.content is not None and not self.content.matches(kind.entity_path):
            return Fate.PASSED_ON
        if not is_property(kind.entity_path) and (
            kind.components is None or not kind.components.isdisjoint(self.inputs)
        ):
            return Fate.LOOKED_INTO
        return Fate.LEFT_OUT if self.mode == "drop_unmatched" else Fate.PASSED_ON

    def describe(self) -> str:
        """One line for the plan: mode, entities, and each lens with its input and outputs."""
        shown = [f"output_mode={self.mode!r}"]
        exprs = getattr(self.content, "to_exprs", None)
        if self.content is not None:
            shown.append(f"content={' '.join(exprs()) if exprs is not None else self.content!r}")
        if self.on_error != "raise":
            shown.append(f"on_error={self.on_error!r}")
        return f"lenses({'; '.join([lens.describe() for lens in self.lenses])}; {', '.join(shown)})"

    def __reduce__(self) -> tuple[Any, ...]:
        made = partial(LensSet, content=self.content, on_error=self.on_error, quarantine=self.quarantine)
        return made, (self.lenses, self.mode)


def _on_error(text: str, quarantine: Quarantine | None) -> OnError:
    if text not in get_args(OnError):
        raise ValueError(f"Unknown on_error '{text}', expected 'raise', 'skip', or 'quarantine'")
    if (text == "quarantine") != (quarantine is not None):
        raise ValueError("on_error='quarantine' and `quarantine`, which takes the chunks, go together")
    return cast("OnError", text)


def apply_lenses(chunk: Chunk, lenses: Iterable[Lens] | Lens, output_mode: str = "forward_unmatched") -> list[Chunk]:
    """The chunks that lenses make of ``chunk``, and the columns they do not consume; see :class:`LensSet`.

    The chunk itself where no lens matches it.

    Raises
    ------
    LensError
        (a ``ValueError``) A selector does not fit the data, or two lenses write the same column.
    ValueError
        A lens has no output, or would overwrite its own input.
    """
    return _lens_set(as_lenses(lenses), output_mode).apply(chunk)


@lru_cache(maxsize=64)
def _lens_set(lenses: tuple[Lens, ...], output_mode: str) -> LensSet:
    return LensSet(lenses, output_mode)


def apply_selector(chunk: Chunk, source: DescriptorLike | str, selector: Selector | str) -> Chunk:
    """Return ``chunk`` with ``selector`` applied to the component ``source`` (a name or descriptor), all else the same.

    The new chunk has new row ids; rows keep their order, the column its descriptor.

    Raises :class:`~chunkmill.engine.errors.LensError` (a ``ValueError``) if the component is missing, or the selector
    fails or gives nothing.
    """
    name = descriptor_of(source, "source").component
    pipeline = pipeline_of(selector)
    data = chunk.data
    entity, text = data.entity_path, pipeline_text(pipeline)

    def failed(message: str) -> LensError:
        place = LensError(message, entity_path=entity, component=name, selector=text, chunk_id=chunk.id)
        return joined((place,))

    old = next((c for c in data.components if c.descriptor.component == name), None)
    if old is None:
        raise failed(f"Component '{name}' not found in chunk for entity `{entity}`")
    try:
        values = execute_per_row(pipeline, old.values)
    except SelectorError as error:
        raise failed(
            f"Failed to apply operations to component '{name}' (entity: `{entity}`, input: `{name}`): {error.reason}"
        ) from error
    if values is None:
        raise failed(f"No component outputs were produced for target entity `{entity}`")
    new = tuple(Component(c.descriptor, values) if c is old else c for c in data.components)
    return Chunk.from_data(with_new_row_ids(data.with_components(new)))
