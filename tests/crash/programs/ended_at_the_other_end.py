"""A child that ends, or closes its pipe, before its parent has read all that it wants."""

from __future__ import annotations

import multiprocessing
import sys
import time
from multiprocessing.connection import Connection


def work(pipe: Connection, ends: bool) -> None:
    pipe.send(1)
    if ends:
        raise SystemExit(3)
    pipe.close()
    time.sleep(3)


def main(ends: bool) -> None:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=work, args=(theirs, ends))
    child.start()
    theirs.close()
    print(ours.recv())
    print(ours.recv())


main(sys.argv[1] == "ends")
