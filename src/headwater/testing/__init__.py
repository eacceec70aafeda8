"""The shipped test kit: unreliable ports, directive runner, conformance suites."""
