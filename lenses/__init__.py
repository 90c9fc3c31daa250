"""Lenses: columns made of other columns, by selectors."""
