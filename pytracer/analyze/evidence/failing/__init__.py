"""What is wrong at the line of a Python exception: one kind of mistake per file, in packages by what the line works on.

`explained` asks them in order; all see the line as `line.FailingLine`.
"""
