"""``chunkmill serve``: a lake on a port for Rerun's SDK and viewer, and the tokens of its clients; ``chunkmill mcp``.

As in ``commands``, click alone is imported; no JVM is started.
"""

from __future__ import annotations

import logging
import math
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import click

from ..errors import ChunkmillError, UsageError
from ..limits import keep_freed_memory, let_glibc_serve_arrow
from ..locations import located
from ..units import bytes_of, utc_time
from .catalogs import opened_catalog
from .complaints import reported
from .options import DEBUG, QUIET, CommandGroup, check_place
from .start import leave_out_what_nothing_needs

if TYPE_CHECKING:
    from ..catalog import CatalogClient
    from ..catalog.server import Access, ServiceOptions, TokenFolder

logger = logging.getLogger("chunkmill.cli")

_DEFAULT: Final = "start"
_ARENAS: Final = 2
"""Each arena keeps the memory it freed; two are as fast as more for two clients at once, on two cores."""
_KEPT: Final = 8 << 20
"""In bytes; with 64 MiB, a server kept up to 60 MiB more after large requests than before them."""
_NUMBERS: Final = re.compile(r"0x[0-9a-fA-F]+|\d+")
_JOINED_SECONDS: Final = 10.0
_MOST_LINES: Final = 1000
"""The most lines that are remembered; after that, all are forgotten."""
_LAKE = click.argument("lake", callback=check_place)
_SECRET = click.option(
    "--secret-file",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="CHUNKMILL_SERVE_SECRET_FILE",
    help="The file with the secret for tokens. Default: .serve/secret in the folder of LAKE.",
)
_TOKENS = click.option(
    "--token-folder",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="CHUNKMILL_SERVE_TOKEN_FOLDER",
    help="Records of created and revoked tokens. Default: .serve/tokens in LAKE; for a bucket, beside the secret.",
)


def _user() -> str:
    from ..storage import author

    return author() or f"user {os.getuid()}"  # a number without a name, as in a container


class _ServeGroup(CommandGroup):
    """A group of commands whose ``start`` need not be named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``start`` before arguments that are neither a command nor a request for help."""
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ServeGroup)
def serve() -> None:
    """Serve a lake to Rerun's SDK and viewer, by Rerun's catalog protocol.

    `chunkmill serve LAKE` is short for `chunkmill serve start LAKE`. `chunkmill serve start --help` shows its options.
    """


@serve.command(_DEFAULT)
@_LAKE
@click.option("--create", is_flag=True, help="Also serve a LAKE that does not exist yet; the first entry creates it.")
@click.option("--port", type=click.IntRange(0, 65535), default=51234, show_default=True, help="0: any free port.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--insecure", is_flag=True, help="Require no tokens, even if other machines can call.")
@click.option("--tokens", is_flag=True, help="Also require tokens from callers on this machine.")
@_SECRET
@_TOKENS
@click.option(
    "--oidc",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also accept tokens of the OpenID Connect issuer in this TOML file; needs the extra 'oidc'.",
)
@click.option("--read-only", is_flag=True, help="Refuse every call that writes.")
@click.option("--allow", multiple=True, metavar="FOLDER", help="Let clients register files below this folder or URL.")
@click.option("--tls-cert", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A certificate, in PEM.")
@click.option(
    "--tls-key", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The certificate's key, in PEM."
)
@click.option(
    "--request-memory",
    metavar="SIZE",
    help="Maximum memory of all requests together, after decompression. Default: 1280 MiB.",
)
@click.option(
    "--client-connections",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    help="Maximum number of connections from one address.",
)
@click.option(
    "--handlers", type=click.IntRange(min=1), default=64, show_default=True, help="Maximum number of running calls."
)
@click.option(
    "--calls",
    type=click.IntRange(min=1),
    default=512,
    show_default=True,
    help="Maximum running and waiting calls; more are refused.",
)
@click.option(
    "--watchers",
    type=click.IntRange(min=0),
    default=256,
    show_default=True,
    help="Maximum number of clients that watch for changes.",
)
@click.option("--request-size", default="256 MiB", show_default=True, metavar="SIZE", help="The largest request.")
@click.option("--upload-size", default="16 GiB", show_default=True, metavar="SIZE", help="The largest uploaded file.")
@click.option(
    "--stall-seconds",
    type=click.FloatRange(min=1),
    default=45,
    show_default=True,
    help="How long a client may be silent within a request or an answer.",
)
@click.option("--web", is_flag=True, help="Also serve the viewer's page; needs the extra 'viewer'.")
@click.option(
    "--cors-allow-origin",
    "origins",
    multiple=True,
    metavar="GLOB",
    help="Also allow calls from web pages of matching origins.",
)
@click.option(
    "--audit-log",
    metavar="PLACE",
    help="Log of all changes: a file, stdout or stderr. Default: .serve/audit.jsonl in LAKE; stderr for a bucket.",
)
@click.option("--access-log", metavar="PLACE", help="Log of all calls, including reads: a file, stdout or stderr.")
@click.option(
    "--log-size",
    default="64 MiB",
    show_default=True,
    metavar="SIZE",
    help="The size at which a log file is rotated.",
)
@click.option(
    "--log-files", type=click.IntRange(min=1), default=10, show_default=True, help="Number of files to keep per log."
)
@click.option(
    "--drain-seconds",
    type=click.FloatRange(min=0),
    default=25,
    show_default=True,
    help="How long running calls may continue after SIGTERM.",
)
@click.option("--log-json", is_flag=True, help="Log one JSON object per line.")
@DEBUG
@QUIET
def start_server(lake: str, debug: bool, **given: Any) -> None:
    """Serve LAKE until SIGTERM or Ctrl-C.

    Without --host, only this machine can call. With another address, each call needs a token of `chunkmill serve
    token`, unless --insecure is given. Files outside LAKE can be registered only from folders of --allow.
    """
    with reported(debug=debug):
        let_glibc_serve_arrow()
        leave_out_what_nothing_needs()
        keep_freed_memory(_ARENAS, _KEPT)
        _run(lake, **given)


@serve.command("token")
@_LAKE
@click.option(
    "--can",
    type=click.Choice(["read", "write"]),
    help="Access to all datasets and tables. Default: read, unless some are named.",
)
@click.option("--read", "readable", multiple=True, metavar="NAME", help="Allow reading this dataset or table.")
@click.option(
    "--write", "writable", multiple=True, metavar="NAME", help="Allow reading and writing this dataset or table."
)
@click.option("--expires", default="30 days", show_default=True, metavar="TIME", help="How long the token is valid.")
@click.option(
    "--for-host",
    "hosts",
    multiple=True,
    metavar="HOST",
    help="A host that clients send the token to. Default: 127.0.0.1, localhost.",
)
@click.option("--subject", default=_user, help="The user of the token. Default: the current user.")
@click.option("--list", "is_list", is_flag=True, help="Instead, list the tokens that were made, with their ids.")
@click.option("--revoke", metavar="ID", help="Instead, revoke the token with this id: servers then refuse it.")
@_SECRET
@_TOKENS
@DEBUG
def make_token(
    lake: str,
    is_list: bool,
    revoke: str | None,
    secret_file: Path | None,
    token_folder: Path | None,
    debug: bool,
    **given: Any,
) -> None:
    """Print a token for callers of LAKE's server; it goes into REDAP_TOKEN, or `CatalogClient(…, token=…)`.

    Rerun's SDK sends a token only to the hosts named in it. The secret that signs tokens is created if missing. To
    invalidate all tokens, remove the secret's file and restart the server.
    """
    with reported(debug=debug):
        from ..catalog.server import TokenFolder, secret_of, secret_place

        if secret_file is None and token_folder is None and not secret_place(lake).exists():
            opened_catalog(lake)  # a mistyped name makes no folder
        tokens = TokenFolder.of(lake, secret_file, token_folder)
        if is_list and revoke is not None:
            raise UsageError("--list and --revoke exclude each other")
        if is_list:
            _list_tokens(tokens)
        elif revoke is not None:
            tokens.revoke(revoke)
            click.echo(f"{revoke} is revoked")
        else:
            _make_token(secret_of(secret_file or secret_place(lake), make=True), tokens, **given)


def _make_token(
    secret: bytes,
    tokens: TokenFolder,
    *,
    can: str | None,
    readable: tuple[str, ...],
    writable: tuple[str, ...],
    expires: str,
    hosts: tuple[str, ...],
    subject: str,
) -> None:
    from ..catalog.server import token
    from ..units import seconds_of

    everything = {None: [] if readable or writable else ["read"], "read": ["read"], "write": ["read", "write"]}[can]
    named = [*(f"read:{name}" for name in readable), *(f"write:{name}" for name in writable)]
    click.echo(
        token(
            secret,
            permissions=[*everything, *named],
            seconds=seconds_of(expires),
            hosts=hosts or ("127.0.0.1", "localhost"),
            subject=subject,
            tokens=tokens,
        )
    )


def _list_tokens(tokens: TokenFolder) -> None:
    for record in tokens.records():
        times = (utc_time(seconds)[:10] for seconds in (record.made, record.expires))
        permissions = ", ".join(record.permissions)
        click.echo("  ".join((record.id, f"{record.state:7}", *times, record.subject, f"({permissions})")))


def _run(
    lake: str,
    *,
    create: bool,
    host: str,
    port: int,
    drain_seconds: float,
    log_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    if given["insecure"] and (given["tokens"] or given["oidc"] is not None):
        raise UsageError(f"--insecure and --{'tokens' if given['tokens'] else 'oidc'} exclude each other")
    if (given["tls_cert"] is None) != (given["tls_key"] is None):
        raise UsageError("--tls-cert and --tls-key must be given together")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # its own lines about clients that hang up are no part of our log
    from ..catalog import CatalogClient
    from ..catalog.server import CallLogs, CatalogService, LogOptions, Web, is_loopback, start, viewer_pages
    from ..ingest import logging_to
    from ..storage import HostLimit

    click.get_current_context().call_on_close(HostLimit(given["allow"]).lift)
    wants_tokens = given["tokens"] or given["oidc"] is not None or not (given["insecure"] or is_loopback(host))
    tls = None if given["tls_cert"] is None else (given["tls_cert"].read_bytes(), given["tls_key"].read_bytes())
    options = _service_options(**given)
    kept = bytes_of(given["log_size"]), given["log_files"]
    catalog = CatalogClient(lake) if create else opened_catalog(lake, or_else="--create serves an empty one.")
    access = _access(lake, wants_tokens=wants_tokens, **given)
    level = logging.WARNING if quiet else logging.INFO
    with logging_to(as_json=log_json, level=level) as lines, _stop_signals() as stopped:
        lines.addFilter(JoinedLines())
        service = CatalogService(catalog, options)
        pages = viewer_pages() if given["web"] else {}
        logs = CallLogs.of(lake, LogOptions(given["audit_log"], given["access_log"], *kept))
        server = start(
            service,
            port,
            host,
            threads=given["handlers"],
            stall_seconds=given["stall_seconds"],
            access=access,
            tls=tls,
            web=Web(given["origins"], pages),
            most_of_client=given["client_connections"],
            logs=logs,
        )
        try:
            who = _callers(wants_tokens=wants_tokens, is_loopback=is_loopback(host), read_only=access.read_only)
            address = server.url.replace(f"[{host}]" if ":" in host else host, _name_of(host))
            logger.info("%s is served at %s; %s", lake, address, who)
            if pages:
                logger.info("a browser shows it at %s/", address.removeprefix("rerun+"))
            _tell_of_nothing(service.catalog, lake)
            if wants_tokens and tls is None:
                logger.warning("tokens are sent unencrypted; --tls-cert and --tls-key encrypt them")
            logger.info("changes are logged in %s", logs.audit.place)
            stopped.wait()
            logger.info("stopping; calls have %.0f s to end", drain_seconds)
        finally:
            server.stop(drain_seconds)


def _service_options(
    *,
    allow: tuple[str, ...],
    calls: int,
    watchers: int,
    request_size: str,
    upload_size: str,
    request_memory: str | None,
    **_: Any,
) -> ServiceOptions:
    from ..catalog.server import ServiceOptions

    memory = {} if request_memory is None else {"request_memory": bytes_of(request_memory)}
    return ServiceOptions(
        readable=[str(located(place)) for place in allow],
        most_calls=calls,
        most_watchers=watchers,
        most_request_bytes=bytes_of(request_size),
        most_upload_bytes=bytes_of(upload_size),
        **memory,
    )


class JoinedLines(logging.Filter):
    """Of lines that differ only in numbers, passes one in ten seconds; the next one counts those left out."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: dict[tuple[str, str], tuple[float, int]] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write a line."""
        text = record.getMessage()
        key = record.name, _NUMBERS.sub("#", text)
        with self._lock:
            since, left_out = self._lines.get(key, (-math.inf, 0))
            if record.created < since + _JOINED_SECONDS:
                self._lines[key] = since, left_out + 1
                return False
            if len(self._lines) >= _MOST_LINES:
                self._lines.clear()
            self._lines[key] = record.created, 0
        if left_out:
            record.msg, record.args = f"{text} ({left_out:,} more like it since {utc_time(since)})", ()
        return True


def _name_of(host: str) -> str:
    """The host to call: this machine's name, if the address stands for all its addresses."""
    return socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host  # noqa: S104 (it is not listened at)


def _callers(*, wants_tokens: bool, is_loopback: bool, read_only: bool) -> str:
    """Say who may call.

    >>> _callers(wants_tokens=False, is_loopback=True, read_only=False)
    'everyone on this machine can read and write (--tokens requires tokens)'
    """
    can = "can read" if read_only else "can read and write"
    if wants_tokens:
        return "callers need a token" + (", and can only read" if read_only else "")
    if is_loopback:
        return f"everyone on this machine {can} (--tokens requires tokens)"
    return f"everyone who reaches this address {can} (without --insecure, callers need tokens)"


def _tell_of_nothing(catalog: CatalogClient, lake: str) -> None:
    try:
        if not catalog.entries():
            logger.info("%s has no datasets yet", lake)
    except ChunkmillError as error:
        logger.warning("%s cannot be read now: %s", lake, error)


def _access(
    lake: str,
    *,
    wants_tokens: bool,
    secret_file: Path | None,
    token_folder: Path | None,
    oidc: Path | None,
    read_only: bool,
    **_: Any,
) -> Access:
    from ..catalog.server import Access, Issuer, IssuerOptions, TokenFolder, secret_of, secret_place

    if not wants_tokens:
        return Access(read_only=read_only)
    issuer = None if oidc is None else Issuer(IssuerOptions.read(oidc))
    if issuer is not None and secret_file is None and not isinstance(located(lake), Path):  # no place for a secret
        tokens = None if token_folder is None else TokenFolder(token_folder)
        return Access(None, read_only, tokens, issuer)
    secret = secret_of(secret_file or secret_place(lake), make=True)
    return Access(secret, read_only, TokenFolder.of(lake, secret_file, token_folder), issuer)


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """An event for SIGTERM and Ctrl-C; a second signal ends everything at once."""
    stopped = threading.Event()
    before: dict[signal.Signals, Any] = {}

    def stop(number: int, frame: FrameType | None) -> None:
        del frame
        stopped.set()
        signal.signal(number, before[signal.Signals(number)])

    for kind in (signal.SIGTERM, signal.SIGINT):
        before[kind] = signal.signal(kind, stop)
    try:
        yield stopped
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


# --- agents


@click.command()
@_LAKE
@click.option(
    "--max-rows", type=click.IntRange(1), default=1_000, show_default=True, metavar="N", help="Maximum rows per answer."
)
@click.option("--max-bytes", default="100 kB", show_default=True, metavar="SIZE", help="Maximum size of an answer.")
@click.option(
    "--max-seconds",
    type=click.IntRange(1, 86_400),
    default=50,
    show_default=True,
    metavar="N",
    help="Maximum time of a call.",
)
@click.option("--max-memory", default="2 GiB", show_default=True, metavar="SIZE", help="Maximum memory of a call.")
@DEBUG
def mcp(lake: str, max_rows: int, max_bytes: str, max_seconds: int, max_memory: str, debug: bool) -> None:
    """Serve tools that read LAKE to an agent, by the Model Context Protocol; needs the extra 'mcp'.

    An agent's program starts this command and talks to its standard input and output. The tools list, describe, query,
    find and plot. They only read, and only the entries of LAKE.
    """
    with reported(debug=debug):
        from ..agents import CallLimits, lake_server

        limits = CallLimits(max_rows, bytes_of(max_bytes), max_seconds, bytes_of(max_memory))
        opened_catalog(lake)
        lake_server(lake, limits).run("stdio")
