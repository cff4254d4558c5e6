"""Indices and rows that lead out of a tensor, and where they came from."""
