"""Tokens of an OpenID Connect issuer, which are verified with its cached public keys, and mapped to rights.

A token names its key by an id, which is looked up only among the issuer's keys: places of keys in a token are ignored.
Keys are fetched again if they are old or an id is unknown, but at most every half minute for all callers.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from ...errors import MissingExtraError, UsageError, extra_command
from ...limits import MIB
from .protocol import ProtocolError, Status
from .tokens import decoded, load_jwt

LOG: Final = logging.getLogger(__name__)

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""The accepted signature algorithms. All use public keys."""
_DEFAULT: Final = ("RS256", "ES256")
_LONGEST_TOKEN: Final = 16 * 1024
_MOST_BYTES: Final = MIB
_MOST_KEYS: Final = 100
_LEAST_BITS: Final = 2048
_LEEWAY: Final = 30
"""The most seconds by which two clocks may differ."""
_FRESH_SECONDS: Final = 600.0
_PAUSE_SECONDS: Final = 30.0
_STALE_SECONDS: Final = 86_400.0
"""The most seconds for which keys are used if they cannot be fetched again."""
_PATIENCE: Final = 5.0
_EVERYBODY: Final = "*"
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class IssuerOptions:
    """The requirements of a server for tokens of an issuer.

    ``jwks`` is the URL or the file of its keys. ``subject`` names the claim with the caller's name, and ``groups`` the
    claim with the caller's groups; dots name a claim inside another. ``permissions`` maps a group, or ``*`` for all
    callers, to permissions for :meth:`Rights.of`.
    """

    issuer: str
    audience: str
    jwks: str
    permissions: Mapping[str, Sequence[str]]
    algorithms: Sequence[str] = _DEFAULT
    subject: str = "sub"
    groups: str = "groups"

    @classmethod
    def read(cls, path: Path) -> IssuerOptions:
        """Read the options from a TOML file. Raises ``UsageError``."""
        hint = "docs/deployment.md shows one."
        try:
            given = tomllib.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise UsageError(f"the options of the issuer cannot be read: {error}", path=str(path), hint=hint) from error
        names = {each.name for each in fields(cls)}
        unknown = sorted(given.keys() - names)
        missing = sorted({"issuer", "audience", "jwks", "permissions"} - given.keys())
        if unknown or missing:
            text = f"unknown: {', '.join(unknown)}" if unknown else f"missing: {', '.join(missing)}"
            raise UsageError(f"the options of the issuer are wrong; {text}", path=str(path), hint=hint)
        texts = {name: given[name] for name in names - {"permissions", "algorithms"} if name in given}
        wrong = [name for name, value in texts.items() if not isinstance(value, str) or not value]
        wrong += [] if _are_lists(given["permissions"]) else ["permissions"]
        algorithms = given.get("algorithms", list(_DEFAULT))
        if not isinstance(algorithms, list) or not algorithms or any(each not in ALGORITHMS for each in algorithms):
            wrong.append(f"algorithms (of {', '.join(ALGORITHMS)})")
        if wrong:
            raise UsageError(f"the options of the issuer are wrong: {', '.join(wrong)}", path=str(path), hint=hint)
        made = cls(**given)
        _check_place(made.jwks, path)
        return made


def _are_lists(permissions: Any) -> bool:
    return isinstance(permissions, dict) and all(
        isinstance(texts, list) and all(isinstance(text, str) for text in texts) for texts in permissions.values()
    )


def _check_place(place: str, path: Path) -> None:
    url = urlsplit(place)
    if url.scheme == "https" or (url.scheme == "http" and url.hostname in _LOOPBACK) or not url.scheme:
        return
    raise UsageError(f"keys of an issuer must be at an https URL or in a file, not at {place[:200]!r}", path=str(path))


@dataclass(slots=True)
class Issuer:
    """Verifies tokens of an issuer. Any thread may use it. Raises ``MissingExtraError`` without its package."""

    options: IssuerOptions
    _keys: Keys = field(init=False)

    def __post_init__(self) -> None:
        try:
            import cryptography  # noqa: F401 (what PyJWT verifies by)
        except ImportError as error:
            raise MissingExtraError(
                "tokens of an issuer need the package cryptography, which is not installed",
                hint=extra_command("serve", "oidc"),
            ) from error
        place = self.options.jwks
        self._keys = Keys(place, lambda: _fetched(place) if "://" in place else Path(place).read_bytes())

    def verified(self, given: str) -> tuple[Mapping[str, Any], list[str]]:
        """The claims of a token, with its subject as ``sub``, and its rights. Raises :class:`ProtocolError`."""
        jwt = load_jwt()
        if len(given) > _LONGEST_TOKEN:
            raise _refused("malformed token")
        try:
            header = jwt.get_unverified_header(given)
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise _refused("malformed token") from None
        algorithm, id_ = header.get("alg"), header.get("kid")
        if algorithm not in self.options.algorithms:
            raise _refused("unsupported signature algorithm")
        if "crit" in header or not (id_ is None or isinstance(id_, str)):
            raise _refused("malformed token")
        key = self._keys.find(id_)
        if key is None or key.algorithm not in (None, algorithm):
            raise _refused("the token is not signed by a key of the issuer")
        claims = decoded(
            given,
            key.key,
            algorithms=[algorithm],
            audience=self.options.audience,
            issuer=self.options.issuer,
            leeway=_LEEWAY,
            options={"require": ["exp", "iss", "aud"]},
        )
        subject = _claim(claims, self.options.subject)
        if not isinstance(subject, str) or not subject:
            raise _refused(f"the token has no {self.options.subject}")
        return {**claims, "sub": subject}, self._permissions(claims)

    def _permissions(self, claims: Mapping[str, Any]) -> list[str]:
        groups = _claim(claims, self.options.groups)
        names = groups.split() if isinstance(groups, str) else groups if isinstance(groups, list) else []
        named = [_EVERYBODY, *(name for name in names if isinstance(name, str) and name != _EVERYBODY)]
        return [text for name in named for text in self.options.permissions.get(name, ())]


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """A claim by its name, or by a path with dots."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _refused(text: str) -> ProtocolError:
    return ProtocolError(Status.UNAUTHENTICATED, text)


# --- keys


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key, and its algorithm, or None if the key names none."""

    key: Any
    algorithm: str | None


class Keys:
    """The public keys of an issuer, by their ids. ``fetch`` returns them as a JWKS."""

    def __init__(self, place: str, fetch: Callable[[], bytes]) -> None:
        self._place = place
        self._fetch = fetch
        self._keys: Mapping[str | None, PublicKey] = {}
        self._fetched = self._tried = -math.inf
        self._lock = threading.Lock()

    def find(self, id_: str | None) -> PublicKey | None:
        """The key with an id, or, without an id, the only key; None if there is no such key.

        Raises :class:`ProtocolError` if all keys are too old.
        """
        now = time.monotonic()
        keys = self._keys
        if not keys or self._found(keys, id_) is None:
            with self._lock:
                self._renew(0)
        elif now - self._fetched > _FRESH_SECONDS and self._lock.acquire(blocking=False):
            try:
                self._renew(_FRESH_SECONDS)
            finally:
                self._lock.release()
        if time.monotonic() - self._fetched > _STALE_SECONDS:
            raise ProtocolError(Status.UNAVAILABLE, "the keys of the issuer cannot be read now")
        return self._found(self._keys, id_)

    def _found(self, keys: Mapping[str | None, PublicKey], id_: str | None) -> PublicKey | None:
        if id_ is not None:
            return keys.get(id_)
        return next(iter(keys.values())) if len(keys) == 1 else None

    def _renew(self, age: float) -> None:
        """Fetch the keys if they are older than ``age``, unless this was tried recently."""
        now = time.monotonic()
        if now - self._tried < _PAUSE_SECONDS or now - self._fetched < age:
            return
        self._tried = now
        try:
            keys = keys_in(self._fetch())
        except (OSError, ValueError, RecursionError) as error:
            LOG.warning("the keys of %s cannot be read: %s", self._place, error)
            return
        self._keys, self._fetched = keys, time.monotonic()


def keys_in(data: bytes) -> dict[str | None, PublicKey]:
    """The public keys for signatures in a JWKS; other keys are ignored. Raises ``ValueError`` if there are none."""
    jwt = load_jwt()
    listed = json.loads(data)
    listed = listed.get("keys") if isinstance(listed, dict) else None
    if not isinstance(listed, list) or len(listed) > _MOST_KEYS:
        raise ValueError(f"this is not a JWKS with at most {_MOST_KEYS} keys")
    found: dict[str | None, PublicKey] = {}
    for given in listed:
        if not isinstance(given, dict) or given.get("kty") not in ("RSA", "EC", "OKP"):
            continue  # secret keys are not accepted
        id_, algorithm = given.get("kid"), given.get("alg")
        if given.get("use", "sig") != "sig" or "d" in given or not (algorithm is None or algorithm in ALGORITHMS):
            continue
        try:
            key = jwt.PyJWK(given).key
        except (jwt.PyJWTError, ValueError, TypeError, KeyError):
            continue
        if given["kty"] != "RSA" or key.key_size >= _LEAST_BITS:
            found[id_ if isinstance(id_, str) else None] = PublicKey(key, algorithm)
    if not found:
        raise ValueError("it has no public key for signatures")
    return found


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Do not follow redirects."""


def _fetched(url: str) -> bytes:
    """The bytes at a URL, without redirects. Raises ``OSError`` and ``ValueError``."""
    opener = urllib.request.build_opener(_NoRedirects())
    with opener.open(url, timeout=_PATIENCE) as response:
        data: bytes = response.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES:,} bytes")
    return data
