"""Tokens: the secret that signs them, records of created and revoked tokens, and the callers that they admit.

A token is a JWT, signed by HS256 with a secret of the lake. A folder has a record of each created token, by its id. A
second file marks a revoked token, so that every server of the lake refuses it from then on.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from ...errors import AlreadyExistsError, MissingExtraError, NotFoundError, UsageError, extra_command, writing
from ...execution import sync_folder
from ...locations import located
from ..entry_log import SECRETS
from .protocol import Method, Need, ProtocolError, Rights, Status

_SECRET_NAME: Final = "secret"  # noqa: S105 (the name of a file)
"""The file with the secret that signs tokens. Only its owner can read it; no client can name its folder."""
_EARLIER_NAME: Final = ".serve-secret"
_TOKENS: Final = "tokens"
_REVOKED: Final = ".revoked"
_ALGORITHM: Final = "HS256"
_AUDIENCE: Final = "redap"
_SECRET_BYTES: Final = 32
_LONGEST_TOKEN: Final = 8192
_ID: Final = re.compile(r"[0-9a-f]{16}")


def secret_place(lake: str) -> Path:
    """The file with the secret of a lake, in a folder that its clients cannot reach.

    A secret directly in the lake's folder is moved there; tokens stay valid. Raises ``UsageError`` for a lake in an
    object store.
    """
    place = located(lake)
    if not isinstance(place, Path):
        raise UsageError(
            "a lake in an object store cannot store the secret", path=lake, hint="Give a file by --secret-file."
        )
    earlier, now = place / _EARLIER_NAME, place / SECRETS / _SECRET_NAME
    if earlier.exists() and not now.exists():
        try:
            now.parent.mkdir(mode=0o700, exist_ok=True)
            earlier.rename(now)
        except FileNotFoundError:
            pass  # another process moved it
        except OSError:
            return earlier  # clients cannot name this file, either
    return now


def secret_of(path: Path, *, make: bool) -> bytes:
    """Read the secret; with ``make``, create it if missing. Concurrent callers get the same one.

    Raises
    ------
    UsageError
        The secret is missing or too short, or users other than its owner can read its file.
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
        status, secret = path.stat(), path.read_bytes().strip()
    except OSError as error:
        raise UsageError(
            f"the secret of tokens cannot be read: {error.strerror}",
            path=str(path),
            hint="Create it by `chunkmill serve token`, or name its place by --secret-file.",
        ) from error
    if _others_read(status):
        raise UsageError("other users may read the secret of tokens", path=str(path), hint=f"Run `chmod 600 {path}`.")
    if len(secret) < _SECRET_BYTES:
        raise UsageError(f"the secret of tokens is shorter than {_SECRET_BYTES} bytes", path=str(path))
    return secret


def _others_read(status: os.stat_result) -> bool:
    """Return whether other users may read a file. On Kubernetes, root owns secrets, and a pod's group reads them."""
    own = (os.getegid(), *os.getgroups())
    is_mounted = status.st_uid == 0 != os.geteuid() and status.st_gid in own and status.st_gid != 0
    return bool(status.st_mode & (0o037 if is_mounted else 0o077))


def token(
    secret: bytes,
    *,
    can_write: bool = False,
    permissions: Sequence[str] | None = None,
    seconds: float,
    hosts: Sequence[str],
    subject: str,
    tokens: TokenFolder | None = None,
) -> str:
    """Return a token that is valid for ``seconds`` from now.

    Rerun's clients send it only to ``hosts`` (names without ports).

    ``permissions`` are as for :meth:`Rights.of`, by default ``read``, and ``write`` with ``can_write``. With ``tokens``
    the token is recorded first, so that you can revoke it.
    """
    now = int(time.time())
    claims = {
        "iss": "chunkmill",
        "sub": subject,
        "aud": _AUDIENCE,
        "jti": secrets.token_hex(8),
        "iat": now,
        "exp": now + int(seconds),
        "permissions": list(permissions or (("read", "write") if can_write else ("read",))),
        "allowed_hosts": list(hosts),
    }
    made = signed(claims, secret)
    if len(made) > _LONGEST_TOKEN:
        raise UsageError(
            f"the token would have {len(made):,} characters, more than a server accepts", hint="Name fewer entries."
        )
    if tokens is not None:
        tokens.record(claims)
    return made


def signed(claims: Mapping[str, Any], secret: bytes) -> str:
    """A token with these claims."""
    made: str = load_jwt().encode(dict(claims), secret, algorithm=_ALGORITHM)
    return made


def verified(given: str, secret: bytes, audience: str) -> Mapping[str, Any]:
    """The claims of a token for an audience. Raises :class:`ProtocolError` if the token is foreign or has expired."""
    if len(given) > _LONGEST_TOKEN:
        raise ProtocolError(Status.UNAUTHENTICATED, "malformed token")
    # PyJWT compares signatures in constant time
    return decoded(given, secret, algorithms=[_ALGORITHM], audience=audience, options={"require": ["exp", "aud"]})


def decoded(given: str, key: Any, **options: Any) -> Mapping[str, Any]:
    """The claims of a token, decoded by PyJWT. Raises :class:`ProtocolError`."""
    jwt = load_jwt()
    try:
        claims: Mapping[str, Any] = jwt.decode(given, key, **options)
    except jwt.ExpiredSignatureError:
        text = "token has expired"
    except jwt.InvalidSignatureError:
        text = "invalid token signature"
    except jwt.InvalidAlgorithmError:
        text = "unsupported signature algorithm"
    except (jwt.DecodeError, ValueError, RecursionError):
        text = "malformed token"
    except (jwt.PyJWTError, TypeError):
        text = "invalid token"
    else:
        return claims
    raise ProtocolError(Status.UNAUTHENTICATED, text)


def load_jwt() -> Any:
    """The module of PyJWT. Raises ``MissingExtraError`` if it is not installed."""
    try:
        import jwt
    except ImportError as error:
        raise MissingExtraError(
            "tokens need the package PyJWT, which is not installed", hint=extra_command("serve")
        ) from error
    return jwt


# --- created and revoked tokens


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """The record of a created token; times are in seconds since the epoch."""

    id: str
    subject: str
    permissions: Sequence[str]
    made: int
    expires: int
    is_revoked: bool

    @property
    def state(self) -> str:
        """One of ``valid``, ``revoked`` and ``expired``."""
        return "revoked" if self.is_revoked else "valid" if time.time() < self.expires else "expired"


@dataclass(frozen=True, slots=True)
class TokenFolder:
    """The folder with records of created and revoked tokens, but not the tokens themselves."""

    place: Path

    @classmethod
    def of(cls, lake: str, secret_file: Path | None = None, named: Path | None = None) -> TokenFolder:
        """The folder ``named``, or by default one in the lake's folder.

        For a lake in an object store the default is next to the secret.
        """
        if named is not None:
            return cls(named)
        place = located(lake)
        if isinstance(place, Path):
            return cls(place / SECRETS / _TOKENS)
        if secret_file is None:
            secret_place(lake)  # raises an error with a hint
        assert secret_file is not None
        return cls(secret_file.with_name(f"{secret_file.name}.{_TOKENS}"))

    def record(self, claims: Mapping[str, Any]) -> None:
        """Store a record of a token, durably. Raises ``WriteError``."""
        names = {"id": "jti", "subject": "sub", "permissions": "permissions", "made": "iat", "expires": "exp"}
        self._store(f"{claims['jti']}.json", {name: claims[claim] for name, claim in names.items()})

    def revoke(self, id: str) -> None:  # noqa: A002 (it is one)
        """Revoke a token by its id: servers refuse it from now on. Raises ``UsageError`` and ``WriteError``."""
        if not _ID.fullmatch(id):
            raise UsageError(
                f"{id[:100]!r} is not the id of a token", hint="`chunkmill serve token LAKE --list` lists the ids."
            )
        try:
            self._store(f"{id}{_REVOKED}", {"revoked": int(time.time())})
        except AlreadyExistsError:
            return

    def is_revoked(self, id: str) -> bool:  # noqa: A002 (as above)
        """Return whether a token is revoked. Raises :class:`ProtocolError` if the records cannot be read."""
        if not _ID.fullmatch(id):
            return False
        try:
            os.lstat(f"{self.place}/{id}{_REVOKED}")
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ProtocolError(
                Status.UNAVAILABLE, f"the list of revoked tokens cannot be read now: {error.strerror}"
            ) from error
        return True

    def records(self) -> list[TokenRecord]:
        """All records, in the order of the tokens' creation. Raises ``NotFoundError`` if a record is damaged."""
        found = []
        for path in self.place.glob("*.json"):
            try:
                fields = json.loads(path.read_bytes())
                found.append(TokenRecord(**fields, is_revoked=self.is_revoked(fields["id"])))
            except (ValueError, TypeError, KeyError) as error:
                raise NotFoundError("the record of a token is damaged", path=str(path), hint="Remove it.") from error
        return sorted(found, key=lambda record: (record.made, record.id))

    def _store(self, name: str, fields: Mapping[str, Any]) -> None:
        """Create a file as a whole or not at all. Raises ``AlreadyExistsError`` and ``WriteError``."""
        draft = self.place / f".{name}.{secrets.token_hex(4)}"
        with writing(str(self.place / name)):
            self.place.parent.parent.mkdir(parents=True, exist_ok=True)
            for folder in (self.place.parent, self.place):
                folder.mkdir(mode=0o700, exist_ok=True)
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123
                file.write(json.dumps(fields).encode())
                file.flush()
                os.fsync(file.fileno())
            try:
                (self.place / name).hardlink_to(draft)
            except FileExistsError:
                raise AlreadyExistsError("the record already exists", path=str(self.place / name)) from None
            finally:
                draft.unlink()
            sync_folder(self.place)


# --- callers

_LONGEST_SUBJECT: Final = 256


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller and its rights. ``kind`` is its class in metrics, ``expires`` the end of its token."""

    rights: Rights
    kind: str
    subject: str = ""
    token_id: str = ""
    expires: float = math.inf

    @classmethod
    def of(cls, claims: Mapping[str, Any], rights: Rights, kind: str, given: str) -> Caller:
        """The caller with a token of these claims."""
        id_ = claims.get("jti")
        if not isinstance(id_, str) or not _ID.fullmatch(id_):  # the id of an earlier build, or of another issuer
            id_ = hashlib.sha256(given.encode()).hexdigest()[:16]
        subject = str(claims.get("sub", ""))[:_LONGEST_SUBJECT]
        return cls(rights, kind, subject, id_, float(claims["exp"]))


NOBODY: Final = Caller(Rights(frozenset(), frozenset()), "refused")
"""An unknown caller."""


class Verifier(Protocol):
    """A verifier of tokens from another issuer."""

    def verified(self, given: str) -> tuple[Mapping[str, Any], list[str]]:
        """The claims of a token, and its permissions. Raises :class:`ProtocolError`."""
        ...


@dataclass(frozen=True, slots=True)
class Access:
    """The clients that a server admits: everybody, or holders of tokens.

    With ``read_only``, no client may write. With a ``secret``, tokens signed by it are valid unless ``tokens`` lists
    them as revoked. With an ``issuer``, tokens signed by it are valid.
    """

    secret: bytes | None = None
    read_only: bool = False
    tokens: TokenFolder | None = None
    issuer: Verifier | None = None

    def caller(self, headers: Mapping[str, str | bytes]) -> Caller:
        """Return the caller with these headers. Its token may be revoked. Raises :class:`ProtocolError`."""
        if self.secret is None and self.issuer is None:
            return Caller(Rights.of(["write"], read_only=self.read_only), "anyone")
        given = _bearer(str(headers.get("authorization", "")))
        if self.issuer is not None and (self.secret is None or not _is_own(given)):
            claims, permissions = self.issuer.verified(given)
            kind = "issuer"
        else:
            assert self.secret is not None
            claims = verified(given, self.secret, _AUDIENCE)
            listed = claims.get("permissions")
            permissions, kind = listed if isinstance(listed, list) else [], "token"
        return Caller.of(claims, Rights.of(permissions, read_only=self.read_only), kind, given)

    def check_valid(self, caller: Caller) -> None:
        """Raise :class:`ProtocolError` if the token of a caller is revoked or has expired."""
        if time.time() > caller.expires:
            raise ProtocolError(Status.UNAUTHENTICATED, "token has expired")
        if caller.token_id and self.tokens is not None and self.tokens.is_revoked(caller.token_id):
            raise ProtocolError(Status.UNAUTHENTICATED, "token was revoked")

    def check(self, method: Method, caller: Caller) -> None:
        """Raise :class:`ProtocolError` if a caller may not call the method for any entry."""
        rights = caller.rights
        if not rights.can_read:
            raise ProtocolError(Status.PERMISSION_DENIED, "the token does not permit reading")
        if method.writes and not rights.can_write:
            raise self.refusal()
        if method.need is Need.WRITE_ALL and rights.writable is not None:
            raise ProtocolError(
                Status.PERMISSION_DENIED, "the token permits writing only some entries; this call needs all"
            )

    def refusal(self) -> ProtocolError:
        """The error of a call that writes without the right to write."""
        reason = "this server is read-only" if self.read_only else "the token does not permit writing"
        return ProtocolError(Status.PERMISSION_DENIED, reason)


def _bearer(header: str) -> str:
    kind, _, given = header.partition(" ")
    if kind.lower() != "bearer" or not given:
        raise ProtocolError(
            Status.UNAUTHENTICATED,
            "this server needs a token, and the call has none; clients send a token only to the hosts named in it",
        )
    return given


def _is_own(given: str) -> bool:
    """Return whether a token claims to be signed by a secret, like the server's own tokens."""
    jwt = load_jwt()
    try:
        return len(given) <= _LONGEST_TOKEN and jwt.get_unverified_header(given).get("alg") == _ALGORITHM
    except (jwt.PyJWTError, ValueError, RecursionError):
        return True  # the check of own tokens refuses it
