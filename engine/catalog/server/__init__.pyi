# Made of the table in __init__.py: python -m tests.run house stubs
from .call_log import CallLogs as CallLogs
from .call_log import LogOptions as LogOptions
from .lake import ServiceOptions as ServiceOptions
from .oidc import Issuer as Issuer
from .oidc import IssuerOptions as IssuerOptions
from .protocol import Call as Call
from .protocol import Kind as Kind
from .protocol import Method as Method
from .protocol import Need as Need
from .protocol import ProtocolError as ProtocolError
from .protocol import Rights as Rights
from .protocol import Status as Status
from .protocol import protocol_error as protocol_error
from .tokens import Access as Access
from .tokens import TokenFolder as TokenFolder
from .tokens import secret_of as secret_of
from .tokens import secret_place as secret_place
from .tokens import token as token
from .served import ServedDataset as ServedDataset
from .service import CatalogService as CatalogService
from .temporary import Server as Server
from .transport import is_loopback as is_loopback
from .transport import start as start
from .web import Web as Web
from .web import viewer_pages as viewer_pages

__all__: list[str]
