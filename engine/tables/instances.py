"""Objects that a process makes of classes of functions: one of each, when it first computes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

_MOST: Final = 8
"""Objects that are kept in a process; a model may be large, and a session may live for days."""

_made: dict[str, Callable[..., Any]] = {}
_making = threading.RLock()


def instance_of(
    token: str, kind: Callable[..., Any], arguments: tuple[tuple[Any, ...], dict[str, Any]] | None
) -> Callable[..., Any]:
    """The object of the class ``kind`` that goes by ``token``, made and prepared where this process has none.

    The eight that were used last are kept.
    """
    with _making:
        found = _made.pop(token, None)
        if found is None:
            args, kwargs = arguments or ((), {})
            found = kind(*args, **kwargs)
            prepare = getattr(found, "preprocess", None)
            if callable(prepare):
                prepare()
        _made[token] = found
        while len(_made) > _MOST:
            del _made[next(iter(_made))]
        return found
