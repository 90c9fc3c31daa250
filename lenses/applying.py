"""Lenses and selectors on one chunk."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from ..engine.chunk import Chunk, Component
from ..engine.chunk.columns import DescriptorLike, descriptor_of
from ..engine.errors import LensError, SelectorError
from .compiled import as_lenses
from .lens import Lens
from .lens_set import LensSet
from .own_chunk import with_new_row_ids
from .selector import Selector, pipeline_of
from .selector.evaluation import execute_per_row
from .selector.syntax import pipeline_text
from .work import joined


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
    """``chunk`` with the component ``source`` (a name or descriptor) as ``selector`` gives it, all else the same.

    The new chunk has new row ids; rows keep their order, the column its descriptor.

    Raises :class:`~chunkmill.engine.errors.LensError` (a ``ValueError``) where the component is missing, or the
    selector fails or gives nothing.
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
