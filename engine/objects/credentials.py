"""The environment's credentials and servers: as ``boto3``'s client, and as the settings that Lance takes.

Also how long a store is waited for.
"""

from __future__ import annotations

import os
from typing import Any, Final

from .url import EXTRAS, ObjectUrl

CONNECT_SECONDS: Final = 10
REQUEST_SECONDS: Final = 120

_SETTINGS: Final = ("AWS_", "AZURE_", "GOOGLE_")


def settings() -> tuple[tuple[str, str], ...]:
    """The variables of this moment from which credentials and servers are taken."""
    return tuple(sorted((k, v) for k, v in os.environ.items() if k.startswith(_SETTINGS)))


def is_unsigned() -> bool:
    """Whether S3 is asked without credentials, as public buckets are."""
    return os.environ.get("AWS_SKIP_SIGNATURE", "").lower() in ("1", "true")


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


_PATIENCE: Final = {
    "client_max_retries": "5",
    "client_retry_timeout": "60",
    "connect_timeout": f"{CONNECT_SECONDS}s",
    "timeout": f"{REQUEST_SECONDS}s",
}
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


def storage_options(url: ObjectUrl) -> dict[str, str]:
    """Settings with which Lance reaches the bucket of ``url``, found where :func:`bucket_of` finds them.

    For S3 they hold the credentials of this moment, which may expire: ask again for each table that is opened. For
    other stores they hold none, and Lance looks into the environment itself.
    """
    if EXTRAS[url.scheme] != "s3":
        return dict(_PATIENCE)
    options = dict(_PATIENCE)
    endpoint = next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), None)
    if endpoint is not None:
        options |= {"aws_endpoint": endpoint, "allow_http": str(endpoint.startswith("http://")).lower()}
    if is_unsigned():
        return {**options, "aws_skip_signature": "true"}
    return {**options, **_credentials()}


def _credentials() -> dict[str, str]:
    import boto3

    session = boto3.Session()
    region = os.environ.get("AWS_REGION") or session.region_name
    options = {"aws_region": region} if region else {}
    found = session.get_credentials()
    if found is not None:
        frozen = found.get_frozen_credentials()
        options |= {"aws_access_key_id": frozen.access_key, "aws_secret_access_key": frozen.secret_key}
        if frozen.token:
            options["aws_session_token"] = frozen.token
    return options
