"""Log lines on a stream: JSON for machines, plain text for people."""

from __future__ import annotations

import json
import logging
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from ..errors import ReadWarning

_ROOT: Final = "chunkmill"
_WARNINGS: Final = "chunkmill.warnings"


class JsonFormatter(logging.Formatter):
    """A record as one JSON object on one line, in ASCII.

    ``time`` (RFC 3339, UTC), ``level``, ``logger``, ``message``; then what the record has as its ``ingest``; ``trace``
    where it was logged with an exception. A name that is no text has its odd bytes spelled out (``\\\\udcff``), since
    many a reader of JSON refuses lone surrogates; numbers that JSON does not have are null.
    """

    def format(self, record: logging.LogRecord) -> str:
        """See :class:`JsonFormatter`."""
        line = {
            "time": _time(record, "milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "ingest", {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(_plain(line), allow_nan=False)


class TextFormatter(logging.Formatter):
    """A record on one line: time, message; its level where that is more than information.

    ``encoding`` is that of the stream; what it cannot say is spelled out, as are control characters.
    """

    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__()
        self._encoding = encoding

    def format(self, record: logging.LogRecord) -> str:
        """See :class:`TextFormatter`."""
        level = f"{record.levelname.lower()}: " if record.levelno > logging.INFO else ""
        text = f"{_time(record, 'seconds')} {level}{' '.join(record.getMessage().split())}"
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
        return text.encode(self._encoding, "backslashreplace").decode(self._encoding)


@contextmanager
def logging_to(
    stream: TextIO | None = None, *, as_json: bool = False, level: int = logging.INFO
) -> Iterator[logging.Handler]:
    """Write what ``chunkmill`` logs to ``stream`` (stderr) for as long as the block runs.

    Warnings of what was read become records, too, each time. An application that has handlers of its own does not need
    this.
    """
    target = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(target)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter(target.encoding or "utf-8"))
    logger = logging.getLogger(_ROOT)
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", ReadWarning)
            warnings.showwarning = _logged(warnings.showwarning)
            yield handler
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]
        handler.flush()


def _logged(show: Callable[..., None]) -> Callable[..., None]:
    """Show warnings of this project as records, others as ``show`` does."""

    def shown(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, ReadWarning):
            data = {"event": "warning", "warning": category.__name__}
            logging.getLogger(_WARNINGS).warning("%s", message, extra={"ingest": data})
        else:
            show(message, category, *place, **more)

    return shown


def _time(record: logging.LogRecord, precision: str) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec=precision).replace("+00:00", "Z")


def _plain(value: Any) -> Any:
    """What JSON can say of a value, whatever it is."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_plain(str(key)): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int):
        return value
    return _plain(str(value))
