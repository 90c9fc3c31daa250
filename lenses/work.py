"""One chunk under lenses: its columns, the results of selectors on them, and errors that say where."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from ..engine.chunk import Chunk, ChunkData
from ..engine.errors import LensError, SelectorError
from .compiled import CompiledDerive, CompiledLenses, CompiledMutate, Selected
from .selector_table import SelectorResults


@dataclass(frozen=True, slots=True)
class LensOutput:
    """A chunk that came of lenses, if any, and what went wrong on the way to it."""

    chunk: Chunk | None
    errors: tuple[LensError, ...] = ()


@dataclass(slots=True)
class ChunkWork:
    """A chunk, and what selectors gave on its columns so far."""

    chunk: Chunk
    data: ChunkData
    lenses: CompiledLenses
    _results: dict[str, SelectorResults] = field(default_factory=dict)

    def column(self, lens: CompiledMutate | CompiledDerive, selected: Selected, what: str) -> pa.ListArray | None:
        """What a selector of ``lens`` gives; None for nothing. Raises :class:`LensError` about ``what``."""
        try:
            return self._results_on(lens.component).column(selected.slot)
        except SelectorError as error:
            message = (
                f"Failed to apply operations to {what} "
                f"(entity: `{self.data.entity_path}`, input: `{lens.component}`): {error.reason}"
            )
            raise self.error(message, lens, selected) from error

    def error(self, message: str, lens: CompiledMutate | CompiledDerive, selected: Selected | None = None) -> LensError:
        """An error about this chunk."""
        return LensError(
            message,
            entity_path=self.data.entity_path,
            component=lens.component,
            selector=None if selected is None else selected.text,
            chunk_id=self.chunk.id,
        )

    def _results_on(self, component: str) -> SelectorResults:
        results = self._results.get(component)
        if results is None:
            values = next(c.values for c in self.data.components if c.descriptor.component == component)
            results = SelectorResults(self.lenses.tables[component], values)
            self._results[component] = results
        return results


def joined(errors: tuple[LensError, ...], prefix: str = "") -> LensError:
    """One error for several: their messages in one line, below it where each was, the first one's place."""
    first = errors[0]
    lines = [prefix + "; ".join(e.message for e in errors)]
    for error in errors:
        line = f"  in {error.chunk_id} of {error.entity_path}, component {error.component}"
        line += f", selector {error.selector}" if error.selector is not None else ""
        if line not in lines:
            lines.append(line)
    whole = LensError(
        "\n".join(lines),
        entity_path=first.entity_path,
        component=first.component,
        selector=first.selector,
        chunk_id=first.chunk_id,
    )
    whole.__cause__ = first.__cause__
    return whole
