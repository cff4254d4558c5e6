"""What is wrong at the line of a Python exception: one kind of mistake per file."""
