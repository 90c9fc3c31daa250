"""URLs of objects: a bucket (or container) and a key in it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import unquote

from ..errors import UsageError

EXTRAS: Final = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gcs",
    "abfs": "azure",
    "abfss": "azure",
    "az": "azure",
}
"""The schemes of object stores, and the extra that each needs."""

HTTP: Final = ("http", "https", "hf")
"""The schemes of read-only files on HTTP servers; ``hf`` is the Hugging Face Hub."""

_MAGIC = re.compile(r"[*?\[]")
_ODD_IN_HTTP = re.compile(r"[/\\\x00-\x1f\x7f]")
_URL = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+)://")
_SECRET = re.compile(r"(?:^|[&?;_-])(?:sig|signature|token|key|secret|password|credential|auth)\w*=", re.IGNORECASE)
_BEHIND_PATH = re.compile(r"[?#]")
_HUB_KINDS: Final = ("datasets",)
_UNUSABLE = re.compile(r"/\.{0,2}/|[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True, order=True)
class ObjectUrl:
    """``scheme://bucket/key``. The key is used as written, without percent-encoding.

    In ``https://`` URLs, the bucket is the host, and the key is percent-encoded and includes the query. Files of the
    Hugging Face Hub are ``hf://datasets/owner/name@revision/path``, not encoded.

    Like a path, it has ``name``, ``suffix``, ``stem``, ``parent`` and ``/``, and works with :func:`os.fspath`.

    >>> url = ObjectUrl.of("s3://fleet/2024/drive 1.mcap")
    >>> url.bucket, url.key, url.stem
    ('fleet', '2024/drive 1.mcap', 'drive 1')
    >>> str(url.parent / "drive.rrd")
    's3://fleet/2024/drive.rrd'
    """

    scheme: str
    bucket: str
    key: str
    listed: tuple[int, int] | None = field(default=None, compare=False, repr=False)
    """Size and modification time (ns since 1970) from a listing, if any: it is known to exist without a request."""

    @classmethod
    def of(cls, text: str) -> ObjectUrl:
        """Parse a URL. Raises ``UsageError`` for other text, without repeating a secret in it."""
        scheme, _, rest = text.partition("://")
        scheme = scheme.lower()
        bucket, _, key = rest.partition("/")
        if scheme in HTTP:
            return cls._of_http(scheme, bucket, key, text)
        user, at, host = bucket.partition("@")
        if at and (":" in user or EXTRAS.get(scheme) != "azure"):
            raise UsageError(
                f"the URL {scheme}://…@{host} contains credentials, which would appear in logs",
                hint="Remove them, and set them in the environment.",
            )
        if EXTRAS.get(scheme) == "azure" and "?" in key:
            raise UsageError(
                f"the URL {scheme}://{bucket}/{key.partition('?')[0]} has a query string",
                hint="Remove it; set a SAS token in the environment (AZURE_STORAGE_SAS_TOKEN).",
            )
        if scheme not in EXTRAS:
            schemes = ", ".join(f"{s}://" for s in (*EXTRAS, *HTTP))
            raise UsageError(
                f"{text} is not a supported location",
                hint=f"Supported: local paths, file://, {schemes}.",
            )
        key = key.strip("/")
        if not bucket or any(part in ("", ".", "..") for part in key.split("/") if key):
            raise UsageError(
                f"{text} does not name an object", hint="Write s3://bucket/key, without empty parts of the key."
            )
        return cls(scheme, bucket, key)

    @classmethod
    def _of_http(cls, scheme: str, host: str, key: str, text: str) -> ObjectUrl:
        path, *query = _BEHIND_PATH.split(key.partition("#")[0], maxsplit=1)
        if "@" in host or any(map(_SECRET.search, query)):
            raise UsageError(
                f"the URL {scheme}://{host.rpartition('@')[2]}/{path} contains credentials, which would appear in logs",
                hint="Remove them; for hf://, set HF_TOKEN.",
            )
        path = path.strip("/")
        parts = [unquote(part) if scheme != "hf" else part for part in path.split("/")]
        if not host or (path and any(part in ("", ".", "..") or _ODD_IN_HTTP.search(part) for part in parts)):
            raise UsageError(f"{text!r} does not name a file", hint="Write https://host/folder/file.")
        if scheme == "hf" and (host not in _HUB_KINDS or len(parts) < 2):
            raise UsageError(f"{text!r} does not name a dataset", hint="Write hf://datasets/owner/name/folder/file.")
        if scheme == "hf":
            return cls(scheme, host, path)
        name, _, port = host.lower().partition(":")
        is_usual = port in ("", {"http": "80", "https": "443"}[scheme])
        return cls(scheme, name if is_usual else f"{name}:{port}", "?".join((path, *query)))

    def __str__(self) -> str:
        return f"{self.root}/{self.key}" if self.key else self.root

    def __fspath__(self) -> str:
        return str(self)

    @property
    def root(self) -> str:
        """The URL of the bucket."""
        return f"{self.scheme}://{self.bucket}"

    @property
    def store(self) -> tuple[str, str]:
        """The store and the bucket, the same for all of a store's schemes (``s3://``, ``s3a://``)."""
        return EXTRAS.get(self.scheme, self.scheme), self.bucket

    @property
    def is_read_only(self) -> bool:
        """Whether it is a file of an HTTP server or the Hub."""
        return self.scheme in HTTP

    @property
    def is_pattern(self) -> bool:
        """Whether the key is a pattern; never for an HTTP server, which cannot list files."""
        return self.scheme not in ("http", "https") and _MAGIC.search(self.key) is not None

    @property
    def _path(self) -> str:
        """The key without a query."""
        return self.key.partition("?")[0] if self.scheme in ("http", "https") else self.key

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self._path.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The suffix of the name, with its dot."""
        return PurePosixPath(self.name).suffix

    @property
    def stem(self) -> str:
        """The name without its suffix."""
        return PurePosixPath(self.name).stem

    @property
    def parent(self) -> ObjectUrl:
        """All but the last part."""
        return ObjectUrl(self.scheme, self.bucket, self._path.rpartition("/")[0])

    def __truediv__(self, name: str) -> ObjectUrl:
        return ObjectUrl.of(f"{self.root}/{self._path}/{name}" if self._path else f"{self.root}/{name}")


def is_usable_key(key: str) -> bool:
    """Return True if requests can name an object by this key.

    No part of such a key is empty, ``.`` or ``..``, and no character is a control character.

    >>> [is_usable_key(key) for key in ("a/b 1.mcap", "a//b.mcap", "a/../b.mcap", "a/b\\n.mcap")]
    [True, False, False, False]
    """
    return not _UNUSABLE.search(f"/{key}/")


def is_url(location: str) -> bool:
    """Return True if ``location`` is written as a URL.

    >>> is_url("s3://fleet/drive.mcap"), is_url("drive.mcap")
    (True, False)
    """
    return _URL.match(location) is not None
