from .engine.training import *
