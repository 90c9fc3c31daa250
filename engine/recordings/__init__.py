"""A kept store of many recordings, with versions."""

__all__: list[str] = []
