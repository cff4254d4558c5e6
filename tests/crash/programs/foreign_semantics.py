"""Prints what a program can observe of external memory: what keeps it alive, when deleters run, what is shared."""

import ctypes
import gc
import os
import sys
import tempfile
import weakref

import numpy
import torch
from torch.utils import dlpack


class Owner(numpy.ndarray):
    """An array that can be watched."""


def lifetimes():
    array = numpy.arange(1000.0).view(Owner)
    gone = weakref.ref(array)
    before = sys.getrefcount(array)
    tensor = torch.from_numpy(array)
    view, alias = tensor[10:], torch.from_numpy(array)
    print("references", sys.getrefcount(array) - before, "sum", float(view.sum()))
    del array, tensor
    gc.collect()
    print("alive by a view", gone() is not None)
    del view, alias
    gc.collect()
    print("alive after all", gone() is not None)


def moved_out():
    array = numpy.arange(1000.0)
    tensor = torch.from_numpy(array)
    pointer = tensor.data_ptr()
    tensor.share_memory_()
    tensor[0] = 7
    print("moved", tensor.data_ptr() != pointer, "array", array[0], "shared", tensor.is_shared(), float(tensor.sum()))
    empty = torch.empty(1000)
    storage = empty.untyped_storage()
    print("resizable", storage.resizable(), torch.from_numpy(array).untyped_storage().resizable())
    fd, nbytes = tensor.untyped_storage()._share_fd_cpu_()
    again = torch.UntypedStorage._new_shared_fd_cpu(fd, nbytes)
    again[8] = 1
    print("received", again.is_shared(), float(tensor[1]) != 1.0)


def capsules():
    tensor = torch.arange(100.0)
    capsule = dlpack.to_dlpack(tensor)
    taken = dlpack.from_dlpack(capsule)
    taken[0] = 5
    print("dlpack", float(tensor[0]), taken.data_ptr() == tensor.data_ptr())
    own = torch.arange(100.0)
    lazy = torch._lazy_clone(own)
    lazy[1] = 9
    print("lazily cloned", float(own[1]), float(lazy[1]))
    for foreign in (taken, torch.from_numpy(numpy.arange(10.0))):  # torch 2.13 refuses: not simple data
        try:
            print("lazily cloned", torch._lazy_clone(foreign).sum())
        except RuntimeError as error:
            print("not cloned", str(error)[:40])


def blobs():
    library = ctypes.CDLL(os.environ["BLOB_LIBRARY"])
    library.make(ctypes.c_size_t(10_000))
    print("deleted while it lives", library.deleted())
    library.drop()
    print("deleted after it", library.deleted())


def files():
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "numbers")
        numpy.arange(100, dtype=numpy.float32).tofile(path)
        tensor = torch.from_file(path, shared=True, size=100)
        tensor[3] = 42
        print("file", float(numpy.fromfile(path, dtype=numpy.float32)[3]), float(tensor.sum()))
        torch.save({"w": tensor}, path + ".pt")
        mapped = torch.load(path + ".pt", mmap=True)["w"]
        print("mapped", float(mapped.sum()), mapped.untyped_storage().nbytes())
        storage = torch.UntypedStorage(100)
        storage.resize_(1000)
        storage.fill_(3)
        print("untyped", sum(storage.tolist()), storage.nbytes())


lifetimes()
moved_out()
capsules()
blobs()
files()
