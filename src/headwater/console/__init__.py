"""A web view over the system's own collections."""
