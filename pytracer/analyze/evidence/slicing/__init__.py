"""The lines that made a value: followed back from the line that used it."""
