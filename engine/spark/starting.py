"""Reasons why Spark does not start: looked for before, and told in Spark's own words after."""

from __future__ import annotations

import logging
import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ..errors import SessionStartError

ANSWER_SECONDS: Final = 20.0
"""How long a master or a Spark Connect server may take to answer at all."""

_WORD_SECONDS: Final = 4.0
"""After these the user is told what is waited for."""

_ATTEMPT_SECONDS: Final = 2.0
_JAVA_NAME: Final = re.compile(r"^:?\s*(?:Caused by: )?(?:[a-z_]\w*\.)+(?:\w+(?:\$\w+)*):\s*")
_LONGEST: Final = 400

logger = logging.getLogger("chunkmill.session")


def check_environment() -> None:
    """Raise ``SessionStartError`` where ``SPARK_HOME`` names a folder in which there is no Spark."""
    home = os.environ.get("SPARK_HOME")
    if home and not (Path(home) / "bin" / "spark-submit").exists():
        raise SessionStartError(
            "SPARK_HOME names this folder, and there is no Spark in it",
            path=home,
            hint="Leave it unset to use the Spark of the installed pyspark, or name a folder with bin/spark-submit.",
        )


def start_error(master: str, asked: Mapping[str, str], error: Exception) -> SessionStartError:
    """The error of a start that failed: Spark's words, with the settings that it speaks of."""
    said = reason_of(error)
    settings = {**asked, "spark.master": master}
    named = [f"{key}={value}" for key, value in settings.items() if key in said or (value and value in said)]
    if not named:
        named = [f"{key}={value}" for key, value in asked.items()]
    hint = f"Check {', '.join(named)}." if named else None
    return SessionStartError(f"Spark did not start on {master}: {said}", hint=hint)


def reason_of(error: Exception) -> str:
    """Java's words, and its innermost cause, out of the long text of a Py4J error, in one line.

    It is asked of Java, which must be alive.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [_JAVA_NAME.sub("", line) or line for line in lines if _JAVA_NAME.match(line)]
    said = (told or lines or [repr(error)])[0][:_LONGEST]
    cause = told[-1][:_LONGEST] if told else said
    return said if cause in said else f"{said} ({cause})"


def await_master(master: str) -> None:
    """Wait until one of the masters of a ``spark://`` URL can be reached. Raises ``SessionStartError``."""
    if not master.startswith("spark://"):
        return
    places = [place.rpartition(":") for place in master.removeprefix("spark://").split(",")]

    def can_be_reached(seconds: float) -> bool:
        for host, _, port in places:
            try:
                socket.create_connection((host.strip("[]"), int(port)), min(seconds, _ATTEMPT_SECONDS)).close()
            except ValueError:
                return True  # no number: Spark knows how to tell that
            except OSError:
                continue
            return True
        time.sleep(min(seconds, 0.25))
        return False

    await_answer(master, can_be_reached)


def await_server(url: str) -> None:
    """Wait until a Spark Connect server answers. Raises ``SessionStartError``."""
    try:
        import grpc
        from pyspark.sql.connect.client import DefaultChannelBuilder
    except ImportError:
        return  # pyspark says itself what is not installed
    channel = DefaultChannelBuilder(url).toChannel()
    try:
        ready = grpc.channel_ready_future(channel)

        def answers(seconds: float) -> bool:
            try:
                ready.result(timeout=min(seconds, 0.25))
            except grpc.FutureTimeoutError:
                return False
            return True

        await_answer(url, answers)
    finally:
        channel.close()


def await_answer(place: str, answers: Callable[[float], bool]) -> None:
    """Ask ``answers``, with the seconds that are left, until it says so; after some seconds say what is waited for.

    Raises ``SessionStartError`` after :data:`ANSWER_SECONDS`.
    """
    began = time.monotonic()
    told = False
    while not answers(max(0.01, began + ANSWER_SECONDS - time.monotonic())):
        waited = time.monotonic() - began
        if waited >= ANSWER_SECONDS:
            raise SessionStartError(
                f"nobody has answered at {place} for {ANSWER_SECONDS:.0f} s",
                hint="Check the address, and that Spark runs there.",
            )
        if waited >= _WORD_SECONDS and not told:
            logger.warning("nobody answers at %s yet; waiting up to %.0f s", place, ANSWER_SECONDS)
            told = True
