"""From collections to the outside, exactly once."""
