"""Sources that make their own data: one stream per file, all seeded and resumable."""
