"""What of the environment decides how stores are reached, and how long they are waited for."""

from __future__ import annotations

import os
from typing import Final

CONNECT_SECONDS: Final = 10
REQUEST_SECONDS: Final = 120

_SETTINGS: Final = ("AWS_", "AZURE_", "GOOGLE_")


def settings() -> tuple[tuple[str, str], ...]:
    """The variables of this moment from which credentials and servers are taken."""
    return tuple(sorted((k, v) for k, v in os.environ.items() if k.startswith(_SETTINGS)))


def is_unsigned() -> bool:
    """Whether S3 is asked without credentials, as public buckets are."""
    return os.environ.get("AWS_SKIP_SIGNATURE", "").lower() in ("1", "true")
