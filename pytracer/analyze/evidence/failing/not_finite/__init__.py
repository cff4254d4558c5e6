"""NaN and infinity: where they were made, and what can make them."""
