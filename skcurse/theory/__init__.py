"""The two papers as functions on arrays."""
