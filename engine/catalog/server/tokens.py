"""Who may call: tokens (JWT, signed by HS256 with a secret of the lake), and what each permits."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...errors import MissingExtraError, UsageError, extra_command
from ...locations import located
from ..entry_log import SECRETS
from .methods import ProtocolError, Status

_SECRET_NAME: Final = "secret"  # noqa: S105 (the name of a file)
"""The file in a folder of the lake that signs its tokens, readable by its owner alone; no client can name it."""
_EARLIER_NAME: Final = ".serve-secret"
_ALGORITHM: Final = "HS256"
_AUDIENCE: Final = "redap"
_SECRET_BYTES: Final = 32
_LONGEST_TOKEN: Final = 8192


class Permissions(NamedTuple):
    """The rights of a caller."""

    can_read: bool
    can_write: bool


def secret_place(lake: str) -> Path:
    """The file with the secret of a lake, in a folder that its clients cannot reach.

    Where it was right in the lake's folder it is moved, and tokens stay valid. Raises ``UsageError`` for a lake in an
    object store.
    """
    place = located(lake)
    if not isinstance(place, Path):
        raise UsageError("a lake in an object store keeps no secret", path=lake, hint="Name a file by --secret-file.")
    earlier, now = place / _EARLIER_NAME, place / SECRETS / _SECRET_NAME
    if earlier.exists() and not now.exists():
        try:
            now.parent.mkdir(mode=0o700, exist_ok=True)
            earlier.rename(now)
        except FileNotFoundError:
            pass  # another process has moved it
        except OSError:
            return earlier  # which no client can name, either
    return now


def secret_of(path: Path, *, make: bool) -> bytes:
    """The secret in a file; with ``make`` it is made where there is none. Of several who make it, one does.

    Raises
    ------
    UsageError
        There is none, it is too short, or others than its owner may read it.
    """
    if make and not path.exists():
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        mine = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        with open(os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:  # noqa: PTH123
            file.write(secrets.token_hex(_SECRET_BYTES))
        try:
            path.hardlink_to(mine)
        except FileExistsError:
            pass
        finally:
            mine.unlink()
    try:
        mode, secret = path.stat().st_mode, path.read_bytes().strip()
    except OSError as error:
        raise UsageError(
            f"the secret of tokens cannot be read: {error.strerror}",
            path=str(path),
            hint="`chunkmill serve token` makes it; --secret-file names another place.",
        ) from error
    if mode & 0o077:
        raise UsageError("others may read the secret of tokens", path=str(path), hint=f"Run `chmod 600 {path}`.")
    if len(secret) < _SECRET_BYTES:
        raise UsageError(f"the secret of tokens is shorter than {_SECRET_BYTES} bytes", path=str(path))
    return secret


def token(secret: bytes, *, can_write: bool, seconds: float, hosts: Sequence[str], subject: str) -> str:
    """A token for so many seconds from now. Clients of Rerun send it to ``hosts`` only (names without ports)."""
    now = int(time.time())
    claims = {
        "iss": "chunkmill",
        "sub": subject,
        "aud": _AUDIENCE,
        "iat": now,
        "exp": now + int(seconds),
        "permissions": ["read", "write"] if can_write else ["read"],
        "allowed_hosts": list(hosts),
    }
    return signed(claims, secret)


def signed(claims: Mapping[str, Any], secret: bytes) -> str:
    """A token with these claims."""
    made: str = _jwt().encode(dict(claims), secret, algorithm=_ALGORITHM)
    return made


@dataclass(frozen=True, slots=True)
class Access:
    """Whom a server answers: everybody, or with a ``secret`` those whose token it signed; ``read_only`` binds all."""

    secret: bytes | None = None
    read_only: bool = False

    def permissions(self, headers: Mapping[str, str | bytes]) -> Permissions:
        """The rights of a call with these headers. Raises :class:`ProtocolError` where its token is none of ours."""
        if self.secret is None:
            return Permissions(can_read=True, can_write=not self.read_only)
        granted = _granted(self.secret, str(headers.get("authorization", "")))
        return Permissions("read" in granted, "write" in granted and not self.read_only)

    def refusal(self) -> ProtocolError:
        """The error of a call that writes, and may not."""
        reason = "this server is read-only" if self.read_only else "the token does not permit to write"
        return ProtocolError(Status.PERMISSION_DENIED, reason)


def _granted(secret: bytes, header: str) -> Sequence[Any]:
    kind, _, given = header.partition(" ")
    if kind.lower() != "bearer" or not given:
        raise ProtocolError(
            Status.UNAUTHENTICATED,
            "this server wants a token, and the call has none; clients send one to the hosts alone that it names",
        )
    granted = verified(given, secret, _AUDIENCE).get("permissions", ())
    return granted if isinstance(granted, list) else ()


def verified(given: str, secret: bytes, audience: str) -> Mapping[str, Any]:
    """The claims of a token for an audience. Raises :class:`ProtocolError` where it is none of ours, or too old."""
    jwt = _jwt()
    if len(given) > _LONGEST_TOKEN:
        raise ProtocolError(Status.UNAUTHENTICATED, "malformed token")
    try:
        # PyJWT compares signatures in constant time
        claims: Mapping[str, Any] = jwt.decode(
            given, secret, algorithms=[_ALGORITHM], audience=audience, options={"require": ["exp", "aud"]}
        )
    except jwt.ExpiredSignatureError:
        text = "token has expired"
    except jwt.InvalidSignatureError:
        text = "invalid token signature"
    except jwt.InvalidAlgorithmError:
        text = "unsupported signature algorithm"
    except (jwt.DecodeError, ValueError, RecursionError):
        text = "malformed token"
    except jwt.PyJWTError:
        text = "invalid token"
    else:
        return claims
    raise ProtocolError(Status.UNAUTHENTICATED, text)


def _jwt() -> Any:
    try:
        import jwt
    except ImportError as error:
        raise MissingExtraError(
            "tokens need the package PyJWT, which is not installed", hint=extra_command("serve")
        ) from error
    return jwt
