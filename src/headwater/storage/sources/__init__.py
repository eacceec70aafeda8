"""Sources that read something outside: one per file."""
