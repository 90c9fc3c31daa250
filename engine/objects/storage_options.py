"""The environment's credentials and server as the plain settings that Lance takes them in."""

from __future__ import annotations

import os
from typing import Final

from .environment import CONNECT_SECONDS, REQUEST_SECONDS, is_unsigned
from .url import EXTRAS, ObjectUrl

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
