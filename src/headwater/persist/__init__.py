"""Durable, definite collections of updates, kept in one commit log per location."""
