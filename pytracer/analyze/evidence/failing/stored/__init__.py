"""Files, checkpoints and what was read from them."""
