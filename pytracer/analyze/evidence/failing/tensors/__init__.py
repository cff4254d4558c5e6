"""Tensors that do not fit: by shape, size, type of data, place or index."""
