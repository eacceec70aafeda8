"""Four answers to one query, and a judge: ad hoc, hydrated, maintained, PostgreSQL's own."""
