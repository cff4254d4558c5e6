"""Plays histories of tensors: reads a line of JSON, prints a line with the live storages; ends at an empty line."""

import contextlib
import json
import sys

import numpy
import torch

SLOTS = 6
tensors = [None] * SLOTS


def new(slot, kind, nbytes):
    if kind == "numpy":
        tensors[slot] = torch.from_numpy(numpy.empty(nbytes, dtype=numpy.uint8))
    elif kind == "untyped":
        tensors[slot] = torch.empty(0, dtype=torch.uint8).set_(torch.UntypedStorage(nbytes))
    else:
        tensors[slot] = torch.empty(nbytes, dtype=torch.uint8)


def view(slot, source, _):
    tensors[slot] = tensors[source][1:] if tensors[source] is not None and tensors[source].numel() > 1 else None


def resizable(tensor):
    """Raises where torch 2.13 would read through null: it resizes shared memory without an allocator."""
    if tensor.untyped_storage().is_shared():
        raise ValueError("shared memory cannot be resized")
    return tensor


def resize(slot, _, nbytes):
    resizable(tensors[slot]).untyped_storage().resize_(nbytes)


def resize_tensor(slot, _, nbytes):
    resizable(tensors[slot]).resize_(nbytes)


def set_to(slot, source, _):
    tensors[slot].set_(tensors[source])


def swap(slot, other, _):
    torch.utils.swap_tensors(tensors[slot], tensors[other])


def share(slot, _, __):
    if tensors[slot].untyped_storage().nbytes() > 0:  # else it is shared, without a flag for it
        tensors[slot].share_memory_()


def drop(slot, _, __):
    tensors[slot] = None


WORDS = {f.__name__: f for f in (new, view, resize, resize_tensor, set_to, swap, share, drop)}


def play(history):
    for word, *arguments in history:
        # An empty slot, a storage that cannot be resized: no change.
        with contextlib.suppress(AttributeError, RuntimeError, TypeError, ValueError):
            WORDS[word](*arguments)
    storages = [tensor.untyped_storage() for tensor in tensors if tensor is not None]
    return sorted({(storage.data_ptr(), storage.nbytes()) for storage in storages if storage.nbytes() > 0})


print(json.dumps(play([])), flush=True)
for line in sys.stdin:
    if not line.strip():
        break
    print(json.dumps(play(json.loads(line))), flush=True)
