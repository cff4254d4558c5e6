"""A damaged heap or stack: what the C library saw, and who may have written there."""
