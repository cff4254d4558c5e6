"""The source of the program, read as syntax: calls, names, loops."""
