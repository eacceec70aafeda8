"""SQL in, rows out: one timeline, strictly serializable."""
