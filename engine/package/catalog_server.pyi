# Made of the table in catalog_server.py: python -m tests.run house stubs
from .engine.catalog.server import Access as Access
from .engine.catalog.server import Call as Call
from .engine.catalog.server import CallLogs as CallLogs
from .engine.catalog.server import CatalogService as CatalogService
from .engine.catalog.server import Issuer as Issuer
from .engine.catalog.server import IssuerOptions as IssuerOptions
from .engine.catalog.server import Kind as Kind
from .engine.catalog.server import LogOptions as LogOptions
from .engine.catalog.server import Method as Method
from .engine.catalog.server import Need as Need
from .engine.catalog.server import ProtocolError as ProtocolError
from .engine.catalog.server import Rights as Rights
from .engine.catalog.server import ServedDataset as ServedDataset
from .engine.catalog.server import Server as Server
from .engine.catalog.server import ServiceOptions as ServiceOptions
from .engine.catalog.server import Status as Status
from .engine.catalog.server import TokenFolder as TokenFolder
from .engine.catalog.server import Web as Web
from .engine.catalog.server import is_loopback as is_loopback
from .engine.catalog.server import protocol_error as protocol_error
from .engine.catalog.server import secret_of as secret_of
from .engine.catalog.server import secret_place as secret_place
from .engine.catalog.server import start as start
from .engine.catalog.server import token as token
from .engine.catalog.server import viewer_pages as viewer_pages

__all__: list[str]
