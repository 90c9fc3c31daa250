"""ROS 1 bags in the registry of formats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..mcap.recording import McapRecording, faults_of
from ..recording_file import RecordingFile

if TYPE_CHECKING:
    from ...engine.rrd import Verification
    from .reader import BagReader


@dataclass(frozen=True)
class BagRecording(McapRecording):
    """A ROS 1 bag; its options are those of an MCAP."""

    def _reader_type(self) -> type[BagReader]:
        from .reader import BagReader

        return BagReader

    def verify(self) -> Verification:
        """Verify every record, and decode every message; for a damaged bag, verify only records."""
        from ...engine.rrd import Findings
        from .reader import BagSource

        findings = Findings()
        with findings.noting():
            report = BagSource(str(self.path)).recovery_report()
            if report.is_whole:
                findings.add(RecordingFile.verify(self))
            else:
                findings.count(chunks=report.chunks, rows=report.messages)
                for fault in faults_of(report):
                    findings.fault(fault)
        return findings.verification()
