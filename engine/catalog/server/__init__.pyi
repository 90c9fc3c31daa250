# Made of the table in __init__.py: python -m tests.run house stubs
from .lake import ServiceOptions as ServiceOptions
from .protocol import Call as Call
from .protocol import Kind as Kind
from .protocol import Method as Method
from .protocol import ProtocolError as ProtocolError
from .protocol import Status as Status
from .protocol import protocol_error as protocol_error
from .reception import Access as Access
from .reception import secret_of as secret_of
from .reception import secret_place as secret_place
from .reception import token as token
from .served import ServedDataset as ServedDataset
from .service import CatalogService as CatalogService
from .temporary import Server as Server
from .transport import is_loopback as is_loopback
from .transport import start as start
from .web import Web as Web
from .web import viewer_pages as viewer_pages

__all__: list[str]
