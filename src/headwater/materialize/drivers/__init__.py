"""Drivers: one endpoint per file, all with the contract of ``responder.py``."""
