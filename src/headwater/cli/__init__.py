"""One command per file: parses, calls, prints."""
