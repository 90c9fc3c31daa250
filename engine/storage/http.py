"""Files of HTTP servers and of the Hugging Face Hub, read by ranges, and never written.

A server may redirect, answer without ranges, hide sizes, and fail sometimes. Each address is checked before a request,
including those of redirects: see :class:`HostLimit`.
"""

from __future__ import annotations

import json
import os
import random
import re
import tempfile
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, BinaryIO, ClassVar, Final, NamedTuple, NoReturn
from urllib.parse import quote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from ..errors import ReadError, ReadWarning, SourceMissingError, UsageError
from ..limits import MAX_DOWNLOAD, MAX_SCHEMA_BYTES, check_limit
from ..units import counted
from .bucket import CONNECT_SECONDS, REQUEST_SECONDS, Bucket, ObjectInfo
from .url import ObjectUrl

HOSTS_VARIABLE: Final = "CHUNKMILL_HTTP_HOSTS"
"""The allowed schemes and hosts (``https://data.example:8443``), separated by spaces. Unset: all."""

_ATTEMPTS: Final = 6
_PATIENCE: Final = 60.0
_LONGEST_WAIT: Final = 5.0
_REDIRECTS: Final = frozenset((301, 302, 303, 307, 308))
_MOST_REDIRECTS: Final = 10
_STALE: Final = frozenset((400, 401, 403, 404, 410))
"""The answers of servers to an expired address that another server signed."""
_PASSING: Final = frozenset((408, 425, 429, 500, 502, 503, 504))
_PIECE: Final = 1 << 18
_MOST_COPIES: Final = 4
_MOST_TARGETS: Final = 1024
_RANGE: Final = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")
_NEXT: Final = re.compile(r'<([^>]+)>;\s*rel="next"')
_DENIED: Final = "Check that the file is public; for hf://, set HF_TOKEN to a token."
_TRY_AGAIN: Final = "The server or the network failed temporarily; run it again."
_HUB: Final = "https://huggingface.co"


class HostLimit:
    """Limits this process, and those it starts meanwhile, to the schemes and hosts of some URLs.

    Other URLs and paths are ignored; ``hf://`` URLs stand for the Hub. Hosts in ``CHUNKMILL_HTTP_HOSTS`` stay allowed.
    Several limits at once allow the hosts of all.
    """

    _held: ClassVar[list[HostLimit]] = []
    _before: ClassVar[str | None] = None

    def __init__(self, places: Iterable[str]) -> None:
        urls = [ObjectUrl.of(place) for place in places if place.startswith(("http://", "https://", "hf://"))]
        self.hosts = {_origin(_address(url)) for url in urls}
        if not self._held:
            HostLimit._before = os.environ.get(HOSTS_VARIABLE)
        self._held.append(self)
        self._apply()

    def lift(self) -> None:
        """End the limit."""
        self._held.remove(self)
        self._apply()

    @classmethod
    def _apply(cls) -> None:
        if cls._held:
            hosts = {host for limit in cls._held for host in limit.hosts}
            os.environ[HOSTS_VARIABLE] = " ".join(sorted(hosts.union((cls._before or "").split()))) or "none"
        elif cls._before is None:
            os.environ.pop(HOSTS_VARIABLE, None)
        else:
            os.environ[HOSTS_VARIABLE] = cls._before


def _origin(address: str) -> str:
    url = urlsplit(address)
    port = url.port if url.port not in (None, {"http": 80, "https": 443}.get(url.scheme)) else None
    return f"{url.scheme}://{(url.hostname or '').lower()}{'' if port is None else f':{port}'}"


def _endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or _HUB


class _HubPath(NamedTuple):
    """A path in a dataset of the Hub."""

    name: str
    revision: str
    path: str

    @classmethod
    def of(cls, key: str) -> _HubPath:
        owner, _, rest = key.partition("/")
        name, _, path = rest.partition("/")
        name, _, revision = name.partition("@")
        return cls(f"{owner}/{name}", revision if "%" in revision else quote(revision or "main", safe=""), path)


def _address(url: ObjectUrl) -> str:
    """The HTTP address of a location."""
    if url.scheme != "hf":
        return str(url)
    hub = _HubPath.of(url.key)
    return f"{_endpoint()}/datasets/{hub.name}/resolve/{hub.revision}/{quote(hub.path)}"


class _Answer(NamedTuple):
    """The answer to a request; ``data`` is empty if it was not read."""

    status: int
    headers: Mapping[str, str]
    data: bytes

    @property
    def version(self) -> str | None:
        return self.headers.get("ETag") or self.headers.get("Last-Modified")

    @property
    def length(self) -> int | None:
        text = self.headers.get("Content-Length", "")
        return int(text) if text.isdigit() else None

    @property
    def modified_ns(self) -> int:
        try:
            date = parsedate_to_datetime(self.headers.get("Last-Modified", ""))
        except ValueError:
            return 0
        return int(date.replace(tzinfo=date.tzinfo or UTC).timestamp()) * 1_000_000_000

    def range(self) -> tuple[int | None, int | None]:
        """The first byte of the received range, and the size of the file; None if not given."""
        match = _RANGE.match(self.headers.get("Content-Range", ""))
        if match is None:
            return None, None
        return None if match[1] is None else int(match[1]), None if match[3] == "*" else int(match[3])


class _Copy(NamedTuple):
    """A downloaded file, stored without a name."""

    file: BinaryIO
    size: int
    version: str | None


class _DisturbedError(Exception):
    """A request failed, and may succeed if repeated."""

    def __init__(self, message: str, wait: float = 0.0) -> None:
        super().__init__(message)
        self.wait = wait


class HttpBucket(Bucket):
    """The files of one host, or of the Hub, as objects.

    A request with a transient failure is repeated, up to five times within a minute. The version of a file is its
    ``ETag``, or else its modification date; without both, a replacement is not detected. If a server does not support
    ranges, or hides the size and does not support ranges from the end, each process downloads the file once, with a
    ``ReadWarning``. Writing raises ``UsageError``.
    """

    def __init__(self, url: ObjectUrl) -> None:
        self.url = url
        self._lock = threading.RLock()
        self._targets: OrderedDict[str, str] = OrderedDict()
        self._copies: OrderedDict[str, _Copy] = OrderedDict()

    # --- reading

    def find(self, key: str) -> ObjectInfo | None:
        """Return size and version of a file, or None. Raises ``ReadError``."""
        answer = self._ask(key, {"Range": "bytes=0-0"}, most=1)
        if answer.status in (404, 410):
            return None
        size = self._size(key, answer)
        return ObjectInfo(self._url(key), size, answer.version, answer.modified_ns)

    def _size(self, key: str, answer: _Answer) -> int:
        if answer.status == 416:
            return answer.range()[1] or 0
        if answer.status == 206:
            size = answer.range()[1]
            return self._hidden_size(key) if size is None else size
        if answer.length is not None:
            return answer.length
        return self._copied(key, answer.version).size

    def _hidden_size(self, key: str) -> int:
        """The size of a file whose server omits it, from a request for the last byte."""
        answer = self._ask(key, {"Range": "bytes=-1"}, most=1)
        first, size = answer.range()
        if answer.status == 206 and size is not None:
            return size
        if answer.status == 206 and first is not None and len(answer.data) == 1:
            return first + 1
        return self._copied(key, answer.version).size

    def read(self, key: str, start: int, stop: int, version: str | None) -> memoryview:
        """The bytes ``start`` to ``stop`` of a file, fewer if it ends earlier.

        Raises ``ReadError`` if the file does not have ``version``, unless that is None.
        """
        with self._lock:
            copy = self._copies.get(key)
        if copy is None:
            answer = self._ask(key, {"Range": f"bytes={start}-{stop - 1}"}, most=stop - start, first=start)
            if answer.status in (404, 410):
                raise SourceMissingError("there is no such file", path=str(self._url(key)), hint="Check the URL.")
            if answer.status == 416 or (version and answer.version != version):
                self._fail_changed(key, start)
            if answer.status == 206:
                return memoryview(answer.data)
            copy = self._copied(key, answer.version)
        if version and copy.version != version:
            with self._lock:
                self._copies.pop(key, None)
            self._fail_changed(key, start)
        return memoryview(os.pread(copy.file.fileno(), max(min(stop, copy.size) - start, 0), start))

    def get(self, key: str) -> bytes:
        """Read a small file as a whole."""
        info = self.head(key)
        check_limit(info.size, MAX_SCHEMA_BYTES, path=str(self._url(key)), offset=0, what="the length of the file")
        return bytes(self.read(key, 0, info.size, info.version)) if info.size else b""

    def _fail_changed(self, key: str, offset: int) -> NoReturn:
        raise ReadError(
            "the object was changed while it was read",
            path=str(self._url(key)),
            offset=offset,
            hint="Another program is writing to the object; try again.",
        )

    def _copied(self, key: str, version: str | None) -> _Copy:
        """Download a file, unless this process has it."""
        with self._lock:
            copy = self._copies.get(key)
            if copy is not None and (version is None or copy.version == version):
                return copy
            file = tempfile.TemporaryFile(prefix="chunkmill-http-")  # noqa: SIM115 (it is open as long as it is used)
            url = str(self._url(key))
            try:
                answer = self._ask(key, {}, most=MAX_DOWNLOAD, into=file)
                if answer.status != 200:
                    raise ReadError(f"the server answered {answer.status}", path=url, hint=_TRY_AGAIN, transient=True)
                size = file.seek(0, os.SEEK_END)
                file.flush()
            except OSError as error:
                file.close()
                raise ReadError(
                    f"it cannot be downloaded: {error.strerror}", path=url, hint="Free some space."
                ) from None
            except BaseException:
                file.close()
                raise
            message = (
                f"{url}: the server does not support range requests, so the whole file is downloaded "
                f"({counted(size, 'byte')})"
            )
            warnings.warn(message, ReadWarning, stacklevel=5)
            self._copies[key] = _Copy(file, size, answer.version)
            while len(self._copies) > _MOST_COPIES:
                self._copies.popitem(last=False)
            return self._copies[key]

    def list(self, prefix: str, odd: Callable[[ObjectUrl, str], None] | None = None) -> Iterator[ObjectInfo]:  # noqa: ARG002
        """All files below a folder of the Hub; an HTTP server lists none."""
        if self.url.scheme != "hf":
            return
        hub = _HubPath.of(prefix)
        owner, base, *_ = f"{prefix}/".split("/")
        path = f"/{quote(hub.path)}" if hub.path else ""
        address: str | None = f"{_endpoint()}/api/datasets/{hub.name}/tree/{hub.revision}{path}?recursive=true"
        while address is not None:
            answer = self._follow_patiently(address, {}, MAX_SCHEMA_BYTES, str(self._url(prefix)))[0]
            if answer.status in (404, 410):
                return
            for name, size in self._entries(answer.data, prefix):
                url = self._url(f"{owner}/{base}/{name}")
                yield ObjectInfo(ObjectUrl(url.scheme, url.bucket, url.key, (size, 0)), size, None, 0)
            following = _NEXT.search(answer.headers.get("Link", ""))
            address = None if following is None else urljoin(address, following[1])

    def _entries(self, data: bytes, prefix: str) -> Sequence[tuple[str, int]]:
        try:
            entries = [e for e in json.loads(data) if e["type"] == "file"]
            return sorted((str(entry["path"]), int(entry["size"])) for entry in entries)
        except (ValueError, KeyError, TypeError, RecursionError):
            message = "the Hub's list of files cannot be read"
            raise ReadError(message, path=str(self._url(prefix)), hint=_TRY_AGAIN) from None

    # --- requests

    def _ask(
        self, key: str, headers: dict[str, str], *, most: int, first: int | None = None, into: BinaryIO | None = None
    ) -> _Answer:
        """Request a file, at the address of its last redirect, if any.

        From an answer 206, up to ``most`` bytes are read, which begin at ``first``; from 200, all bytes ``into`` a
        file, or none.
        """
        origin, shown = _address(self._url(key)), str(self._url(key))
        with self._lock:
            target = self._targets.get(key)
        if target is not None:
            answer, _ = self._follow_patiently(target, headers, most, shown, first, into, is_signed=True)
            if answer.status not in _STALE:
                return _checked(answer, shown)
        answer, target = self._follow_patiently(origin, headers, most, shown, first, into)
        with self._lock:
            self._targets.pop(key, None)
            if target != origin:
                self._targets[key] = target
            while len(self._targets) > _MOST_TARGETS:
                self._targets.popitem(last=False)
        return _checked(answer, shown)

    def _follow_patiently(
        self,
        address: str,
        headers: dict[str, str],
        most: int,
        shown: str,
        first: int | None = None,
        into: BinaryIO | None = None,
        is_signed: bool = False,
    ) -> tuple[_Answer, str]:
        end = time.monotonic() + _PATIENCE
        wait = 0.1
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._follow(address, headers, most, shown, first, into)
            except _DisturbedError as error:
                pause = max(error.wait, wait * random.uniform(0.5, 1.0))  # noqa: S311 (no secret)
                if attempt == _ATTEMPTS or time.monotonic() + pause > end:
                    if is_signed:
                        return _Answer(410, {}, b""), address
                    raise ReadError(str(error), path=shown, offset=first, hint=_TRY_AGAIN, transient=True) from None
                time.sleep(pause)
                wait = min(2 * wait, _LONGEST_WAIT)
        raise AssertionError

    def _follow(
        self, address: str, headers: dict[str, str], most: int, shown: str, first: int | None, into: BinaryIO | None
    ) -> tuple[_Answer, str]:
        """Request once, and follow redirects. Return the answer, and the address that gave it."""
        for _ in range(_MOST_REDIRECTS):
            _check_allowed(address, shown)
            response = _opened(address, {**headers, **_credentials(address)})
            try:
                if response.status not in _REDIRECTS:
                    return _read(response, most, first, into, shown), address
                address = _redirected(address, response.headers.get("Location", ""), shown)
            finally:
                response.close()  # after reading to the end, the connection stays open
        raise ReadError(f"more than {_MOST_REDIRECTS} redirects", path=shown, hint="Check the URL.")

    # --- no writing

    def _refuse(self, key: str) -> NoReturn:
        raise UsageError(
            f"{self.url.scheme}:// can only be read, not written",
            path=str(self._url(key)),
            hint="Write to a local path or an object store.",
        )

    def put(self, key: str, data: bytes | bytearray | memoryview) -> None:  # noqa: ARG002
        """Raise ``UsageError``."""
        self._refuse(key)

    def create(self, key: str, data: bytes) -> bool:  # noqa: ARG002
        """Raise ``UsageError``."""
        self._refuse(key)

    def copy(self, source: str, target: str) -> None:  # noqa: ARG002
        """Raise ``UsageError``."""
        self._refuse(target)

    def delete(self, keys: Sequence[str]) -> None:
        """Raise ``UsageError``."""
        self._refuse(keys[0] if keys else "")

    def open_writer(self, key: str, part_bytes: int, at_once: int) -> Any:  # noqa: ARG002
        """Raise ``UsageError``."""
        self._refuse(key)


def _check_allowed(address: str, shown: str) -> None:
    """Raise ``ReadError`` for a host that is not allowed, for example of a redirect."""
    allowed = os.environ.get(HOSTS_VARIABLE)
    if allowed is not None and _origin(address) not in allowed.split():
        raise ReadError(
            f"requests to {_origin(address)} are not allowed",
            path=shown,
            hint=f"Allowed: {allowed}. Allow more with --allow of a server, or with {HOSTS_VARIABLE}.",
        )


def _redirected(address: str, location: str, shown: str) -> str:
    target = urljoin(address, location)
    url = urlsplit(target)
    if not location or url.scheme not in ("http", "https") or not url.hostname:
        raise ReadError("a redirect to an address that is not HTTP", path=shown, hint="Check the URL.")
    if url.scheme == "http" and address.startswith("https:"):
        raise ReadError(
            f"a redirect from HTTPS to an unencrypted connection, {_origin(target)}",
            path=shown,
            hint="To read it unencrypted, give the http:// address itself.",
        )
    return target.partition("#")[0]


def _credentials(address: str) -> dict[str, str]:
    token = os.environ.get("HF_TOKEN")
    return {"Authorization": f"Bearer {token}"} if token and _origin(address) == _origin(_endpoint()) else {}


def _checked(answer: _Answer, shown: str) -> _Answer:
    if answer.status in (401, 403):
        raise ReadError(f"access denied ({answer.status})", path=shown, hint=_DENIED)
    if answer.status not in (200, 206, 404, 410, 416):
        raise ReadError(f"the server answered {answer.status}", path=shown, hint="Check the URL.")
    return answer


_pools: dict[str | None, Any] = {}
os.register_at_fork(after_in_child=_pools.clear)


def _pool(address: str) -> Any:
    """This process's connections, through the environment's proxy, if any."""
    import urllib3

    url = urlsplit(address)
    proxy = None if proxy_bypass(url.hostname or "") else getproxies().get(url.scheme)
    if proxy not in _pools:
        _pools[proxy] = urllib3.PoolManager(maxsize=16) if proxy is None else urllib3.ProxyManager(proxy, maxsize=16)
    return _pools[proxy]


def _opened(address: str, headers: dict[str, str]) -> Any:
    """Send a request, and read the head of its answer. Raises :class:`_DisturbedError`."""
    import urllib3

    host = urlsplit(address).hostname
    try:
        response = _pool(address).request(
            "GET",
            address,
            headers={"Accept-Encoding": "identity", "User-Agent": "chunkmill", **headers},
            preload_content=False,
            decode_content=False,
            redirect=False,
            retries=False,
            timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=REQUEST_SECONDS),
        )
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise _DisturbedError(f"{host} cannot be reached ({type(error).__name__})") from None
    if response.status in _PASSING:
        wait = response.headers.get("Retry-After", "")
        response.close()
        raise _DisturbedError(f"the server answered {response.status}", float(wait) if wait.isdigit() else 0.0)
    return response


def _read(response: Any, most: int, first: int | None, into: BinaryIO | None, shown: str) -> _Answer:
    """Read an answer with its bytes: a range, a list, or a whole file. Raises :class:`_DisturbedError`."""
    import urllib3

    answer = _Answer(response.status, response.headers, b"")
    is_range = response.status == 206
    begin = answer.range()[0] if is_range else None
    if is_range and first is not None and begin != first:
        raise ReadError(
            f"the server sent bytes from {begin} instead of {first:,}",
            path=shown,
            offset=first,
            hint="It does not support range requests; download the file.",
        )
    is_list = response.status == 200 and into is None and first is None and most > 1
    if not (is_range or is_list or (response.status == 200 and into is not None)):
        return answer
    parts: list[bytes] = []
    size = 0
    if into is not None:
        into.seek(0)
        into.truncate()
    try:
        while size <= most:
            piece = response.read(min(_PIECE, most + 1 - size))
            if not piece:
                break
            size += len(piece)
            parts.append(piece) if into is None else into.write(piece)
    except urllib3.exceptions.HTTPError as error:
        raise _DisturbedError(
            f"the answer of the server was cut off after {size:,} bytes ({type(error).__name__})"
        ) from None
    if answer.length is not None and size < min(answer.length, most):
        raise _DisturbedError(f"the answer of the server was cut off after {size:,} of {answer.length:,} bytes")
    check_limit(size, most, path=shown, offset=first, what="the length of the server's answer")
    return answer._replace(data=b"".join(parts))
