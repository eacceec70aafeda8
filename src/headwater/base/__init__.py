"""What every layer needs and no layer owns: errors, clock, retry, identifiers, telemetry."""
