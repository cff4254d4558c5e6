"""What an operator takes for granted of its arguments, held against what was passed to it."""
