"""What ``convert`` is asked to do, and the checks of its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..pipelines import Pipeline


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """The options of ``convert``, as parsed. ``None`` and empty mean: not given. ``reading``: options of formats."""

    content: tuple[str, ...] = ()
    pipeline: Pipeline | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)
    application_id: str | None = None
    recording_id: str | None = None
    verify: bool = False
    executor: str | None = None
    master: str | None = None
    conf: dict[str, str] = field(default_factory=dict)
    stats: bool = False
    report: str | None = None
    debug: bool = False
    quiet: bool = False


def check_id(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """Refuse an id of nothing, which would be taken for none."""
    if value is not None and not value.strip():
        raise click.BadParameter("an id cannot be empty; leave the option out for the default")
    return value


def check_report(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """Refuse a name that says neither JSON nor HTML before anything is read."""
    if value is not None and not value.endswith((".json", ".html")):
        raise click.BadParameter(f"{value!r} ends neither with .json nor with .html")
    return value


def check_svg(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """Refuse a name that says another kind of picture."""
    if value is not None and not value.endswith(".svg"):
        raise click.BadParameter(f"{value!r} does not end with .svg")
    return value


def parse_conf(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Turn ``key=value`` words into a mapping; the last of two equal keys wins."""
    conf = {}
    for value in values:
        key, equals, setting = value.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{value!r} is not of the form KEY=VALUE")
        conf[key.strip()] = setting
    return conf
