"""The delta rules, one operator per module: ``step(op, given) -> Outcome``."""
