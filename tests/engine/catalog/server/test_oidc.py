"""Tokens of an issuer of OpenID Connect: what is verified, hostile tokens, its keys and their limits, and rights."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from calls_of_tokens import SECRET, Reached
from chunkmill.engine.catalog.server import Issuer, IssuerOptions, ProtocolError, Rights, Status, oidc
from chunkmill.engine.catalog.server.oidc import Keys, keys_in
from chunkmill.engine.errors import UsageError
from http_server import serving
from served import small_lake

jwt = pytest.importorskip("jwt")
ec = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ec")
rsa = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa")
serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")

ISSUER, AUDIENCE = "https://login.example.org/robots", "chunkmill"
PRIVATE = {"rsa": rsa.generate_private_key(65537, 2048), "ec": ec.generate_private_key(ec.SECP256R1())}
OTHER = rsa.generate_private_key(65537, 2048)
PERMISSIONS = {"robotics": ["read"], "labelers": ["read:drives", "write:labels"]}


def public(name: str, **fields: Any) -> dict[str, Any]:
    kind = {"rsa": jwt.algorithms.RSAAlgorithm, "ec": jwt.algorithms.ECAlgorithm}[name]
    return {**kind.to_jwk(PRIVATE[name].public_key(), as_dict=True), "kid": name, "use": "sig", **fields}


def jwks(*keys: Mapping[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys or (public("rsa"), public("ec")))}).encode()


def pem(key: Any) -> bytes:
    whole: bytes = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return whole


def claims(**changed: Any) -> dict[str, Any]:
    now = int(time.time())
    whole = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "iat": now, "exp": now + 600, "groups": ["labelers"]}
    return {name: value for name, value in {**whole, **changed}.items() if value is not None}


def signed(key: Any = PRIVATE["rsa"], algorithm: str = "RS256", kid: Any = "rsa", **changed: Any) -> str:
    headers = {} if kid is None else {"kid": kid}
    whole: str = jwt.encode(claims(**changed), key, algorithm=algorithm, headers=headers)
    return whole


def made(header: Mapping[str, Any], signature: bytes = b"x" * 256, **changed: Any) -> str:
    """A token that no library would make."""
    parts = [json.dumps(header).encode(), json.dumps(claims(**changed)).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


@pytest.fixture
def options(tmp_path: Path) -> IssuerOptions:
    (tmp_path / "keys.json").write_bytes(jwks())
    return IssuerOptions(ISSUER, AUDIENCE, str(tmp_path / "keys.json"), PERMISSIONS)


@pytest.fixture
def reached(tmp_path: Path, options: IssuerOptions) -> Reached:
    catalog = small_lake(tmp_path)
    catalog.create_dataset("labels")
    catalog.create_dataset("secret")
    return Reached(tmp_path / "lake", issuer=Issuer(options))


def test_a_token_has_the_rights_of_its_groups(reached: Reached, options: IssuerOptions) -> None:
    for given in (signed(), signed(PRIVATE["ec"], "ES256", "ec"), signed(aud=["x", AUDIENCE])):
        (found,) = reached.call(given, "FindEntries", filter={"entry_kinds": [1]}).messages
        assert {entry.name for entry in found.entries} == {"drives", "labels"}
        assert reached.call(given, "CreateDatasetEntry", name="mine").status is Status.PERMISSION_DENIED
    assert reached.call(signed(groups=[]), "FindEntries").status is Status.PERMISSION_DENIED
    assert reached.call(signed(groups="robotics other"), "FindEntries").status is Status.OK
    log = [json.loads(line) for line in (reached.lake / ".serve" / "audit.jsonl").open()]
    assert {(line["subject"], line["status"]) for line in log} == {("ada", "PERMISSION_DENIED")}
    assert b'caller="issuer"' in reached.reception.metrics.text() and b"ada" not in reached.reception.metrics.text()
    # tokens of the lake's own go on
    assert reached.call(reached.token("read"), "FindEntries").status is Status.OK


CONFUSED = jwt.api_jws.PyJWS()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (lambda: signed(exp=int(time.time()) - 60), "token has expired"),
        (lambda: signed(exp=None), "invalid token"),
        (lambda: signed(nbf=int(time.time()) + 600), "invalid token"),
        (lambda: signed(aud="elsewhere"), "invalid token"),
        (lambda: signed(aud=None), "invalid token"),
        (lambda: signed(iss="https://login.example.org"), "invalid token"),
        (lambda: signed(iss=None), "invalid token"),
        (lambda: signed(sub=""), "the token has no sub"),
        (lambda: signed(OTHER), "invalid token signature"),
        (lambda: signed(PRIVATE["ec"], "ES256", "rsa"), "invalid token"),
        (lambda: signed(algorithm="RS512"), "unsupported signature algorithm"),
        (lambda: jwt.encode(claims(), None, algorithm="none"), "unsupported signature algorithm"),
        (lambda: made({"alg": "None", "kid": "rsa"}, b""), "unsupported signature algorithm"),
        (lambda: made({"alg": ["RS256"], "kid": "rsa"}), "malformed token"),
        (lambda: made({"kid": "rsa"}), "unsupported signature algorithm"),
        (lambda: made({"alg": "RS256", "kid": "rsa", "crit": ["exp"], "exp": 1}), "malformed token"),
        (lambda: signed(kid=None), "the token is not signed by a key of the issuer"),
        (lambda: signed(kid="../../../dev/null"), "the token is not signed by a key of the issuer"),
        (lambda: signed(kid="rsa' OR '1'='1"), "the token is not signed by a key of the issuer"),
        (lambda: signed(kid="http://127.0.0.1:1/keys"), "the token is not signed by a key of the issuer"),
        (lambda: made({"alg": "RS256", "kid": ["rsa"]}), "malformed token"),
        (
            lambda: made({"alg": "RS256", "kid": "rsa", "jwk": {}, "jku": "http://127.0.0.1:1/"}),
            "invalid token signature",
        ),
        (lambda: signed(padding="x" * 20_000), "malformed token"),
        (lambda: "x" * 2_000_000, "malformed token"),
        (lambda: "..", "malformed token"),
        (lambda: signed()[:-8], "malformed token"),
        (lambda: "A" + signed()[1:], "malformed token"),
    ],
)
def test_a_hostile_token_is_refused(reached: Reached, given: Any, text: str) -> None:
    answer = reached.call(given(), "FindEntries")
    assert (answer.status, answer.messages) == (Status.UNAUTHENTICATED, [])
    if text == "malformed token":  # what PyJWT says of a form differs by its version
        assert answer.text in (text, "invalid token", "invalid token signature", "unsupported signature algorithm")
    else:
        assert answer.text == text


def hmac_signed(key: bytes, kid: str = "rsa") -> str:
    """A token that takes a public key for a secret, as the library refuses to make one."""
    import hashlib
    import hmac

    head, body, _ = made({"alg": "HS256", "kid": kid}).split(".")
    digest = hmac.digest(key, f"{head}.{body}".encode(), hashlib.sha256)
    return f"{head}.{body}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def test_a_public_key_is_no_secret(reached: Reached, options: IssuerOptions) -> None:
    for key in (pem(PRIVATE["rsa"]), pem(PRIVATE["rsa"]).strip(), jwks(), b""):
        assert reached.call(hmac_signed(key), "FindEntries").status is Status.UNAUTHENTICATED
    without = Reached(reached.lake, secret=None, issuer=Issuer(options))
    assert without.call(hmac_signed(pem(PRIVATE["rsa"])), "FindEntries").status is Status.UNAUTHENTICATED
    # nor does the secret of the lake sign as the issuer
    forged = jwt.encode(claims(permissions=["write"]), SECRET, algorithm="HS256")
    assert reached.call(forged, "FindEntries").status is Status.UNAUTHENTICATED


def test_only_public_keys_that_sign_are_taken() -> None:
    small = rsa.generate_private_key(65537, 1024)
    weak = {**jwt.algorithms.RSAAlgorithm.to_jwk(small.public_key(), as_dict=True), "kid": "weak"}
    secret = {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"}
    private = {**jwt.algorithms.RSAAlgorithm.to_jwk(OTHER, as_dict=True), "kid": "private"}
    broken = {"kty": "RSA", "n": "!", "e": "AQAB", "kid": "broken"}
    found = keys_in(jwks(weak, secret, private, broken, public("rsa", use="enc", kid="enc"), public("ec"), {}))
    assert set(found) == {"ec"}
    for data in (jwks(secret), b"[]", b"{}", b'{"keys": 1}', b"nonsense", jwks(*[public("ec")] * 101), b"[" * 100_000):
        with pytest.raises((ValueError, RecursionError)):
            keys_in(data)


def test_a_key_is_for_its_algorithm_alone(tmp_path: Path) -> None:
    (tmp_path / "keys").write_bytes(jwks(public("rsa", alg="RS512")))
    issuer = Issuer(IssuerOptions(ISSUER, AUDIENCE, str(tmp_path / "keys"), PERMISSIONS, ["RS256", "RS512"]))
    with pytest.raises(ProtocolError, match="not signed by a key of the issuer"):
        issuer.verified(signed())
    assert issuer.verified(signed(algorithm="RS512"))[1] == PERMISSIONS["labelers"]


# --- keys


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(oidc.time, "monotonic", lambda: now[0])
    return now


def test_keys_are_asked_for_again_but_not_by_every_caller(clock: list[float]) -> None:
    """Of unknown ids: at most every half minute, whatever is sent."""
    given, asked = [jwks(public("rsa"))], 0

    def fetch() -> bytes:
        nonlocal asked
        asked += 1
        if not given[0]:
            raise OSError("it is away")
        return given[0]

    keys = Keys("the issuer", fetch)
    for number in range(1000):
        assert keys.find(f"unknown {number}") is None
    assert asked == 1 and keys.find("rsa") is not None
    given[0] = jwks(public("rsa"), public("ec"))
    assert keys.find("ec") is None
    clock[0] += 31
    assert keys.find("ec") is not None and asked == 2
    clock[0] += 601  # the issuer takes a key back
    given[0] = jwks(public("ec"))
    keys.find("ec")
    assert keys.find("rsa") is None and asked == 3
    given[0] = b""
    clock[0] += 3600
    assert keys.find("ec") is not None and keys.find("ec") is not None and asked == 4
    clock[0] += 86_400
    with pytest.raises(ProtocolError, match="cannot be read now") as refused:
        keys.find("ec")
    assert refused.value.code is Status.UNAVAILABLE


def test_keys_come_over_http(options: IssuerOptions) -> None:
    """Without redirects, and not more than a MiB."""
    with serving() as server:
        server.files["keys.json"] = jwks()
        server.files["large.json"] = b" " * 2**20 + jwks()

        def verified(path: str) -> Any:
            return Issuer(IssuerOptions(ISSUER, AUDIENCE, f"{server.url}/{path}", PERMISSIONS)).verified(signed())

        assert verified("plain/keys.json")[1] == PERMISSIONS["labelers"]
        for path in ("redirect/keys.json", "plain/large.json", "plain/none.json"):
            with pytest.raises(ProtocolError, match="cannot be read now"):
                verified(path)


# --- options


def test_options_are_read(tmp_path: Path) -> None:
    place = tmp_path / "issuer.toml"
    place.write_text(
        f"""
        issuer = "{ISSUER}"
        audience = "{AUDIENCE}"
        jwks = "{tmp_path}/keys"
        subject = "profile.mail"
        groups = "https://example.org/roles"
        algorithms = ["ES256"]
        [permissions]
        "*" = ["read:drives"]
        writers = ["write"]
        """
    )
    (tmp_path / "keys").write_bytes(jwks())
    issuer = Issuer(IssuerOptions.read(place))
    changed = {"profile": {"mail": "ada@example.org"}, "https://example.org/roles": ["*", "writers", 3]}
    known, permissions = issuer.verified(signed(PRIVATE["ec"], "ES256", "ec", **changed))
    assert known["sub"] == "ada@example.org" and Rights.of(permissions) == Rights(None, None)
    known, permissions = issuer.verified(signed(PRIVATE["ec"], "ES256", "ec", profile={"mail": "x"}))
    assert Rights.of(permissions) == Rights(frozenset({"drives"}), frozenset())
    with pytest.raises(ProtocolError, match=r"has no profile\.mail"):
        issuer.verified(signed(PRIVATE["ec"], "ES256", "ec"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "missing: audience, issuer, jwks, permissions"),
        ("issuer = ", "cannot be read"),
        ('issuer = 1\naudience = "a"\njwks = "k"\npermissions = {}', "wrong: issuer"),
        ('issuer = "i"\naudience = "a"\njwks = "k"\npermissions = { a = "read" }', "wrong: permissions"),
        ('issuer = "i"\naudience = "a"\njwks = "k"\npermissions = {}\nalgorithms = ["HS256"]', "wrong: algorithms"),
        ('issuer = "i"\naudience = "a"\njwks = "k"\npermissions = {}\nalgorithms = ["none"]', "wrong: algorithms"),
        ('issuer = "i"\naudience = "a"\njwks = "k"\npermissions = {}\nscope = "x"', "unknown: scope"),
        (
            'issuer = "i"\naudience = "a"\njwks = "http://example.org/k"\npermissions = {}',
            "at an https URL or in a file",
        ),
        ('issuer = "i"\naudience = "a"\njwks = "file:///etc/k"\npermissions = {}', "at an https URL or in a file"),
    ],
)
def test_options_that_are_wrong_are_told(tmp_path: Path, text: str, reason: str) -> None:
    place = tmp_path / "issuer.toml"
    place.write_text(text)
    with pytest.raises(UsageError, match=reason):
        IssuerOptions.read(place)
