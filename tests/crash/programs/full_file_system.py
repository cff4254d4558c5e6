"""Maps a file that is larger than the room of its file system, and fills it."""

import mmap
import sys


def fill(mapping):
    mapping[:] = bytes(len(mapping))


with open(sys.argv[1], "w+b") as file:
    file.truncate(4 << 20)
    fill(mmap.mmap(file.fileno(), 4 << 20))
