"""What ranks and processes give each other, and handlers on the way."""
