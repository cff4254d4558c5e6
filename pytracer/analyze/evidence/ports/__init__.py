"""Servers that could not get their port: who has it, and which line of the program opened it."""
