"""Functions and methods that ask for what lies at a path, by the names that os.path, os, glob and pathlib give them."""

from __future__ import annotations

ASKS_OF_PATH = frozenset({"exists", "isfile", "isdir", "lexists", "is_file", "is_dir"})
LISTS_FOLDER = frozenset({"listdir", "scandir", "iterdir", "glob", "iglob", "rglob"})
