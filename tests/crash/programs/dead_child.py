"""A parent that reports the death of a process that it started: dead_child.py HOW.

"spawn": torch.multiprocessing's exception; "pool": concurrent.futures'; "from": one of its own, raised from that.
"other": an exception that is not about the child, after it died. "caught": the parent goes on, and ends well.
"""

import concurrent.futures
import ctypes
import multiprocessing
import sys

import torch.multiprocessing

HOW = sys.argv[1]


def read(number: int) -> bytes:
    """Of a null pointer."""
    return ctypes.string_at(number)  # dies


def main() -> None:
    """In the words of the library that started the child."""
    if HOW == "spawn":
        torch.multiprocessing.spawn(read, nprocs=1)
    pool = concurrent.futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
    if HOW == "pool":
        pool.submit(read, 0).result()
    try:
        pool.submit(read, 0).result()
    except concurrent.futures.process.BrokenProcessPool as error:
        if HOW == "from":
            raise RuntimeError("no samples") from error
    if HOW == "other":
        raise ValueError("7 classes, but labels up to 9")
    print("went on")


if __name__ == "__main__":
    main()
