"""The options of commands: options of ``convert``, checks of values, and options made from the registry of formats."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ZshComplete, add_completion_class

from ...readers import Option, all_options
from ..errors import SourceMissingError, UsageError
from ..locations import local_path
from .outputs import WritingCommand

if TYPE_CHECKING:
    from ..chunk import TimeBounds
    from ..optimisation import OptimizationProfile
    from ..pipelines import Pipeline


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """The options of ``convert``, as parsed. ``None`` and empty mean: not given. ``reading``: options of formats.

    ``chosen``: the reason for the executor, if ``auto`` chose it.
    """

    content: tuple[str, ...] = ()
    pipeline: Pipeline | None = None
    bounds: TimeBounds | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)
    application_id: str | None = None
    recording_id: str | None = None
    optimize: str = "none"
    shards: bool = False
    unsorted: bool = False
    compression: str | None = None
    verify: bool = False
    executor: str | None = None
    master: str | None = None
    conf: dict[str, str] = field(default_factory=dict)
    stats: bool = False
    report: str | None = None
    overwrite: bool = False
    as_json: bool = False
    debug: bool = False
    quiet: bool = False
    chosen: str = ""


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """The options of ``query``, as parsed. ``None`` and empty mean: not given."""

    index: str | None
    contents: tuple[str, ...] = ()
    segments: tuple[str, ...] = ()
    start: int | None = None
    end: int | None = None
    columns: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    values: tuple[int, ...] | None = None
    fill: bool = False
    limit: int | None = None
    semantics: str | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)
    executor: str | None = None
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    output: str | None = None


def chosen_executor(executor: str | None, master: str | None, conf: Mapping[str, str]) -> str | None:
    """The executor of the options: a Spark master or setting means Spark, whatever the environment says.

    Raises ``UsageError`` if both are given.
    """
    wants_spark = master is not None or bool(conf)
    if executor == "inline" and wants_spark:
        raise UsageError("--master and --conf need Spark, but --executor inline runs without it")
    return executor or ("spark" if wants_spark else None)


def check_id(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """Refuse an empty id, which would count as missing."""
    if value is not None and not value.strip():
        raise click.BadParameter("an id cannot be empty; omit the option to use the default")
    return value


def parse_time(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[str, int] | None:
    """Turn ``TIME`` or ``TIMELINE=TIME`` into the timeline, by default ``log_time``, and nanoseconds or a number."""
    if value is None:
        return None
    name, _, text = value.rpartition("=")
    return name or LOG_TIME, _tick(text)


def parse_tick(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """Turn ``TIME`` into nanoseconds or a number."""
    return None if value is None else _tick(value)


def _tick(text: str) -> int:
    if text.lstrip("+-").isdecimal():
        return int(text)
    from ..stream import tick_of

    try:
        tick = tick_of("a time", text)
        assert tick is not None
    except UsageError:
        raise click.BadParameter(
            f"{text!r} is neither a number (of nanoseconds, or in a sequence) nor a time such as 2026-01-23T10:43:30"
        ) from None
    return tick


def bounds_of(start: tuple[str, int] | None, end: tuple[str, int] | None) -> TimeBounds | None:
    """The range between two times. Raises ``UsageError`` if they are of two timelines, or the range is empty."""
    from ..chunk import TimeBounds

    timelines = {given[0] for given in (start, end) if given is not None}
    if not timelines:
        return None
    if len(timelines) > 1:
        raise UsageError(f"--start and --end are on different timelines, {' and '.join(sorted(timelines))}")
    if start is not None and end is not None and start[1] >= end[1]:
        raise UsageError("--end has to be later than --start")
    return TimeBounds(timelines.pop(), *(None if given is None else given[1] for given in (start, end)))


def profile_of(name: str) -> OptimizationProfile | None:
    """The profile of an option's value; None for ``none``."""
    if name == "none":
        return None
    from ..optimisation import OptimizationProfile

    profiles = {"object-store": OptimizationProfile.OBJECT_STORE, "live": OptimizationProfile.LIVE}
    return profiles.get(name)


def check_place(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """Refuse ``-`` for a store, a folder or a file that must outlive a pipe."""
    if value == "-":
        raise click.BadParameter("standard input cannot be used here; for a file called '-', write './-'")
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


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
"""A decorator that adds an option of click to a command."""


def together(*options: Decorator) -> Decorator:
    """Join several options into one, in their order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


CONTENT = click.option(
    "--content", multiple=True, metavar="EXPR", help="Entities to keep, such as '/imu/**'; repeatable."
)
APPLICATION_ID = click.option(
    "--application-id",
    metavar="ID",
    callback=check_id,
    help="Application id to write. Default: the RRD's own; 'chunkmill' for other formats.",
)
EXECUTORS = click.Choice(["spark", "inline", "auto"])
EXECUTOR = click.option(
    "--executor",
    type=EXECUTORS,
    help="Run on Spark (the default), in this process, or wherever it is quicker.",
)
SPARK = together(
    click.option("--master", metavar="URL", help="Spark master, such as 'local[4]'. Default: local[*]."),
    click.option(
        "--conf", multiple=True, metavar="KEY=VALUE", callback=parse_conf, help="A Spark setting; repeatable."
    ),
)
DATASET = click.option("--dataset", metavar="NAME", help="The dataset to use, if STORE is a catalog.")
DEBUG = click.option("--debug", is_flag=True, help="Show full tracebacks.")
QUIET = click.option("-q", "--quiet", is_flag=True, help="Print errors and warnings only.")
PROFILES = click.Choice(["object-store", "live", "none"])

LOG_TIME: Final = "log_time"
"""The default timeline of ``--start`` and ``--end``; it also means an MCAP's ``message_log_time``."""

TIMES = together(
    click.option(
        "--start",
        metavar="[TIMELINE=]TIME",
        callback=parse_time,
        help="Keep rows from this time on: nanoseconds, a sequence number, or 2026-01-23T10:43:30. Default timeline: "
        "log_time.",
    ),
    click.option(
        "--end",
        metavar="[TIMELINE=]TIME",
        callback=parse_time,
        help="Keep rows before this time. Static data is always kept.",
    ),
)
LAYOUT = click.option(
    "--optimize", type=PROFILES, default="none", show_default=True, help="Chunk layout of the output."
)
MCAP = together(
    click.option(
        "--unsorted", is_flag=True, help="MCAP output: keep the order of the input, and copy whole chunks if possible."
    ),
    click.option(
        "--compression",
        type=click.Choice(["zstd", "lz4", "none"]),
        help="MCAP output: compression of chunks. Default: zstd; chunks copied whole keep theirs.",
    ),
)
RECORDING_ID = click.option(
    "--recording-id",
    metavar="ID",
    callback=check_id,
    help="Recording id to write. Default: the RRD's own; the file's name for other formats.",
)


class PlaceType(click.types.StringParamType):
    """The text of a path or URL; shells complete it by the names of files."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Leave the completion to the shell."""
        del ctx, param
        return [CompletionItem(incomplete, type="file")]


_PLACES: Final = {
    *("inputs", "input", "first", "second", "file", "files", "paths", "store", "lake", "landing", "table", "pipeline"),
    *(
        "into",
        "rrds",
        "archive",
        "checkpoint",
        "lerobot",
        "lerobot_spec",
        "spec",
        "output",
        "report",
        "svg",
        "catalog",
        "prefixes",
        "allow",
        "url",
        "html",
        "exports",
        "destination",
        "audit_log",
        "access_log",
    ),
}
"""The names of arguments and options that are paths or URLs."""


def complete_places(command: click.Command) -> None:
    """Let shells complete the paths among the arguments and options of a command and of its subcommands."""
    for param in command.params:
        if param.name in _PLACES and param.type is click.STRING:
            param.type = PlaceType()
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        complete_places(inner)


@add_completion_class
class _BashCompletion(BashComplete):
    """Completes as Click does, and also the value in ``--option=value``, which is three words in bash."""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        return [arg for before, arg in pairwise(["", *args]) if arg != "=" or not before.startswith("--")], incomplete


@add_completion_class
class _ZshCompletion(ZshComplete):
    """Completes as Click does, and also the value in ``--option=value``, which is one word in zsh."""

    source_template = ZshComplete.source_template.replace(
        "() {\n", "() {\n    [[ $PREFIX == --*=* ]] && compset -P 1 '*='\n", 1
    ).replace("compadd -U", 'compadd -U -P "$IPREFIX"')


@add_completion_class
class _FishCompletion(FishComplete):
    """Completes as Click does, and also ``--option=value``, ``~`` and variables; keeps commas in descriptions."""

    source_template = """\
function %(complete_func)s
    set -l token (commandline -ct)
    set -l option (string match -r -- '^--[^=]*=' "$token")
    for line in (env %(complete_var)s=fish_complete COMP_WORDS=(commandline -cp) COMP_CWORD="$token" %(prog_name)s)
        set -l item (string split -m 1 , -- $line)
        switch $item[1]
            case plain
                string join '' -- "$option" $item[2]
            case file dir
                for path in (complete -C "'' "(string replace -- "$option" '' "$token"))
                    if test $item[1] = file; or string match -qr '/(\\t|$)' -- $path
                        string join '' -- "$option" $path
                    end
                end
        end
    end
end
complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
"""


_LONGEST_SENTENCE: Final = 1000


class CommandGroup(click.Group):
    """Commands whose help lists whole sentences, whatever the width of the terminal."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; ``export lerobot`` is a command of its own."""
        if args[:2] == ["export", "lerobot"]:
            args = ["export-lerobot", *args[2:]]
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the name and the first sentence of each command."""
        shown = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(n, c.get_short_help_str(_LONGEST_SENTENCE)) for n, c in shown if c is not None and not c.hidden]
            )


_OPTION_BEFORE: Final = "content"
"""The options of formats follow this option of a command."""


class ReadingCommand(WritingCommand):
    """A command that reads recordings, with the options of all formats; it passes them on as ``reading``."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The command's own options, and those of the formats registered now."""
        params = super().get_params(ctx)
        at = next((i for i, param in enumerate(params) if param.name == _OPTION_BEFORE), len(params) - 1) + 1
        return [*params[:at], *map(_click_option, _flags()), *params[at:]]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        values = {o.name: ctx.params.pop(o.name) for o in _flags()}
        ctx.params["reading"] = {name: value for name, value in values.items() if value is not None and value != ()}
        return super().invoke(ctx)


@lru_cache(maxsize=1)
def load_formats(files: str) -> None:
    """Run Python files that register formats. Raises ``PipelineError``, ``SourceMissingError``, ``UsageError``."""
    from ..pipelines import load_file

    for name in filter(None, files.split(os.pathsep)):
        path = local_path(name)
        if not path.is_file():
            raise SourceMissingError(
                "there is no such file", path=str(path), hint="CHUNKMILL_FORMATS names Python files."
            )
        load_file(path)


def _flags() -> list[Option]:
    return [o for o in all_options() if o.flag is not None]


@lru_cache(maxsize=256)
def _click_option(option: Option) -> click.Option:
    words = [option.flag or "", option.name]
    if option.switch is not None:
        return click.Option(words, is_flag=True, default=None, flag_value=option.switch, help=option.help)
    if option.choices:
        return click.Option(words, type=click.Choice(option.choices), multiple=option.many, help=option.help)
    given = PlaceType() if "FOLDER" in (option.metavar or "") else click.STRING
    parsed = _parsed_by(option)
    return click.Option(
        words, type=given, multiple=option.many, metavar=option.metavar, callback=parsed, help=option.help
    )


def _parsed_by(option: Option) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Parse the words of an option, before anything is read."""
    parse = option.parse
    assert parse is not None

    def parsed(_context: click.Context, _option: click.Parameter, given: Any) -> Any:
        try:
            if option.many:
                return tuple(parse(text) for text in given)
            return None if given is None else parse(given)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return parsed
