"""Samples, batches, loaders and iterators."""
