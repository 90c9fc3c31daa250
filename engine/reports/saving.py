"""Reports as files."""

from __future__ import annotations

from pathlib import Path

from ..errors import UsageError
from ..failing import writing
from .report import RunReport


def save_report(report: RunReport, path: str | Path) -> None:
    """Write the report: as a page that shows it where the name ends with ``.html``, else as JSON (``.json``).

    Raises ``UsageError`` for another ending, ``WriteError`` where it cannot be written.
    """
    target = Path(path)
    if target.suffix == ".html":
        from .page import report_page

        text = report_page(report)
    elif target.suffix == ".json":
        text = report.to_json()
    else:
        raise UsageError("a report is a .json or an .html file", path=str(path))
    with writing(str(path)):
        target.write_text(text, encoding="utf-8")
