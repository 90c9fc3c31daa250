"""Writers of formats: a format that is written is a class and a row."""
