from .engine.catalog.server import *
