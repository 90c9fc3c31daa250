"""Rules that make one component of several columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...engine.errors import UsageError

TARGETS: Final = ("Translation3D", "RotationQuat", "RotationAxisAngle", "Scale3D", "Scalars", "Transform")
"""Everything a rule can make."""


@dataclass(frozen=True)
class ColumnRule:
    """Columns whose names differ in their ends only become one component. Made by the factory methods.

    ``suffixes`` are the ends of the names, in the order of the component's numbers; what stands before them (the
    sub-prefix) has to be the same for all. The component is named after the sub-prefix and ``field_name_override``.

    >>> ColumnRule.translation3d(["_x", "_y", "_z"]).target
    'Translation3D'
    """

    suffixes: Sequence[str]
    target: str
    names: Sequence[str] | None = None
    field_name_override: str | None = None
    rotation_suffixes: Sequence[str] | None = None

    @classmethod
    def translation3d(cls, suffixes: Sequence[str], *, field_name_override: str | None = None) -> ColumnRule:
        """Three columns as ``Transform3D:translation``, float32. Raises ``ValueError`` for another number."""
        _check(len(suffixes) == 3, "Translation3D requires exactly 3 suffixes")
        return cls(list(suffixes), "Translation3D", field_name_override=field_name_override)

    @classmethod
    def rotation_quat(cls, suffixes: Sequence[str], *, field_name_override: str | None = None) -> ColumnRule:
        """Four columns (x, y, z, w) as ``Transform3D:quaternion``, float32.

        Raises ``ValueError`` for another number.
        """
        _check(len(suffixes) == 4, "RotationQuat requires exactly 4 suffixes")
        return cls(list(suffixes), "RotationQuat", field_name_override=field_name_override)

    @classmethod
    def rotation_axis_angle(cls, suffixes: Sequence[str], *, field_name_override: str | None = None) -> ColumnRule:
        """Three columns of an axis and one of an angle (rad) as ``Transform3D:rotation_axis_angle``, float32.

        Raises ``ValueError`` for another number.
        """
        _check(len(suffixes) == 4, "RotationAxisAngle requires exactly 4 suffixes (3 axis + 1 angle)")
        return cls(list(suffixes), "RotationAxisAngle", field_name_override=field_name_override)

    @classmethod
    def scale3d(cls, suffixes: Sequence[str], *, field_name_override: str | None = None) -> ColumnRule:
        """Three columns as ``Transform3D:scale``, float32. Raises ``ValueError`` for another number."""
        _check(len(suffixes) == 3, "Scale3D requires exactly 3 suffixes")
        return cls(list(suffixes), "Scale3D", field_name_override=field_name_override)

    @classmethod
    def scalars(
        cls, suffixes: Sequence[str], *, names: Sequence[str], field_name_override: str | None = None
    ) -> ColumnRule:
        """Any number of columns as ``Scalars:scalars``, float64, with a name for each series.

        Raises ``ValueError`` where there are not as many names as suffixes.
        """
        _check(len(suffixes) == len(names), "suffixes and names must have the same length")
        return cls(list(suffixes), "Scalars", list(names), field_name_override)

    @classmethod
    def transform(
        cls,
        translation_suffixes: Sequence[str],
        rotation_suffixes: Sequence[str],
        *,
        field_name_override: str | None = None,
    ) -> ColumnRule:
        """Three columns of a translation and four of a quaternion (x, y, z, w) with the same sub-prefix.

        Raises ``ValueError`` for other numbers of columns.
        """
        _check(len(translation_suffixes) == 3, "Transform requires exactly 3 translation suffixes")
        _check(len(rotation_suffixes) == 4, "Transform requires exactly 4 rotation suffixes")
        return cls(list(translation_suffixes), "Transform", None, field_name_override, list(rotation_suffixes))


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise UsageError(otherwise)
