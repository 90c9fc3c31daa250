# Made of the table in __init__.py: python -m tests.run house stubs
from .examination import PipedRecording as PipedRecording
from .examination import diagnose as diagnose
from .examination import examine as examine
from .findings import Diagnosis as Diagnosis
from .findings import Finding as Finding
from .findings import KINDS as KINDS
from .findings import SEVERITIES as SEVERITIES
from .findings import joined as joined

__all__: list[str]
