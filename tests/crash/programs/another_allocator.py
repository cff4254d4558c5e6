"""A program with its own allocator for tensors: another_allocator.py DIRECTORY [KIND].

With KIND, does what origins.py does; without, prints the allocator's visible state while recording starts and stops.
"""

import ctypes
import os
import runpy
import sys
from pathlib import Path

import torch

import pytracer

library = ctypes.CDLL(os.environ["ALLOCATOR_LIBRARY"])
library.enter()
directory, kinds = sys.argv[1], sys.argv[2:]


def traced(on):
    if directory == "untraced":
        return
    if on:
        pytracer.enable(directory)
    else:
        pytracer.disable()


def show(when, kept):
    total = float(sum(tensor.sum() for tensor in kept))
    print(when, "alive", library.storages_alive(), "sum", total, "resizable", kept[0].untyped_storage().resizable())


def comes_and_goes():
    older = torch.ones(1000)
    show("before", [older])
    for turn in range(2):
        traced(True)
        newer = older + turn
        show("while", [older, newer])
        newer.untyped_storage().resize_(8000)
        traced(False)
        print("registered", library.is_registered())
        show("after", [older, newer])
        del newer
        show("freed", [older])


if kinds:
    traced(True)
    sys.argv = ["origins.py", *kinds]
    runpy.run_path(str(Path(__file__).with_name("origins.py")), run_name="__main__")
else:
    comes_and_goes()
