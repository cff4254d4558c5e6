"""Names, calls and arguments that are not what the other side takes."""
