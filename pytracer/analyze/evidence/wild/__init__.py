"""What explains an address that belongs to nothing."""
