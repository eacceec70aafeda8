"""From the outside into collections."""
