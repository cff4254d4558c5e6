"""The program's own native code: what its source says, and what the line of Python passes to it."""
