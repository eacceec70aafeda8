"""From the outside into collections: sources, reclocked onto our time."""
