"""A diagnosis of recordings: faults of their meaning, such as clocks that jump, rather than of their bytes.

The names below are loaded when they are first used.
"""

from ..lazy_names import lazy_names

_HOMES = {
    ".examination": "PipedRecording diagnose examine",
    ".findings": "Diagnosis Finding KINDS SEVERITIES joined",
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
