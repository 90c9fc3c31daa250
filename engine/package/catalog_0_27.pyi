from .engine.catalog.v0_27 import *
