"""The client of ``boto3``, for what of S3's protocol the library of all stores does not speak."""

from __future__ import annotations

import os
from typing import Any

from .environment import CONNECT_SECONDS, REQUEST_SECONDS, is_unsigned, settings

_clients: dict[tuple[int, tuple[tuple[str, str], ...]], Any] = {}


def s3_client() -> Any:
    """The client; made once in this process for each state of the environment. Threads may share it."""
    key = (os.getpid(), settings())
    if key not in _clients:
        _clients[key] = _new_client()
    return _clients[key]


def _new_client() -> Any:
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config

    config = Config(
        retries={"total_max_attempts": 6, "mode": "standard"},
        connect_timeout=CONNECT_SECONDS,
        read_timeout=REQUEST_SECONDS,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        signature_version=UNSIGNED if is_unsigned() else None,
    )
    return boto3.Session().client("s3", config=config, region_name=os.environ.get("AWS_REGION"))
