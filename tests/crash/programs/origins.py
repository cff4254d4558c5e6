"""Reads a page of a storage that was made inaccessible: origins.py KIND [DIRECTORY].

KIND is a function below, which makes a storage and returns what keeps it alive, or where it was. With DIRECTORY,
pytracer.enable() is called after the storage was made.
"""

import ctypes
import json
import mmap
import os
import sys
import tempfile

import numpy
import torch

PAGE = 4096
NBYTES = 40 << 20  # above every threshold of malloc's: a mapping of its own, gone when it is freed
SMALL = 300_000  # bytes of what stays: several pages, and no multiple of one
library = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])
libc = ctypes.CDLL(None)
scratch = tempfile.mkdtemp()


def untyped(storage):
    return storage if isinstance(storage, torch.UntypedStorage) else storage.untyped_storage()


# ---- live ----


def empty():
    return torch.empty(SMALL, dtype=torch.uint8)


def operator():
    return torch.ones(SMALL) + 1


def untyped_storage():
    return torch.UntypedStorage(SMALL)


def share_by_descriptor():
    return torch.zeros(SMALL, dtype=torch.uint8).share_memory_()


def share_by_name():
    torch.multiprocessing.set_sharing_strategy("file_system")
    return torch.zeros(SMALL, dtype=torch.uint8).share_memory_()


def receive_by_descriptor():
    sent = torch.zeros(SMALL, dtype=torch.uint8).share_memory_()
    return torch.UntypedStorage._new_shared_fd_cpu(*sent.untyped_storage()._share_fd_cpu_())


def from_file():
    path = os.path.join(scratch, "tokens.bin")
    with open(path, "wb") as file:
        file.truncate(SMALL)
    return torch.from_file(path, shared=True, size=SMALL, dtype=torch.uint8)


def save():
    path = os.path.join(scratch, "model.pt")
    torch.save({"weight": torch.zeros(SMALL, dtype=torch.uint8)}, path)
    return path


def load():
    return torch.load(save())["weight"]


def load_mapped():
    return torch.load(save(), mmap=True)["weight"]


def from_numpy():
    return torch.from_numpy(numpy.zeros(SMALL, dtype=numpy.uint8))


def from_buffer():
    return torch.frombuffer(mmap.mmap(-1, SMALL), dtype=torch.uint8)


def from_dlpack():
    return torch.from_dlpack(numpy.zeros(SMALL, dtype=numpy.uint8))


def from_blob():
    blob = ctypes.CDLL(os.environ["BLOB_LIBRARY"])
    blob.make.restype = ctypes.c_void_p
    return Place(blob.make(ctypes.c_size_t(SMALL)), SMALL)


def from_blob_without_deleter():
    memory = libc.mmap
    memory.restype = ctypes.c_void_p
    address = memory(None, ctypes.c_size_t(SMALL), 3, 0x22, -1, 0)
    handle = ctypes.c_void_p()
    sizes, strides = (ctypes.c_int64 * 1)(SMALL), (ctypes.c_int64 * 1)(1)
    make = ctypes.CDLL("libtorch_cpu.so").aoti_torch_create_tensor_from_blob
    uint8 = torch.uint8
    assert uint8.itemsize == 1
    zero = ctypes.c_int64(0)
    result = make(ctypes.c_void_p(address), ctypes.c_int64(1), sizes, strides, zero, 0, 0, 0, ctypes.byref(handle))
    assert result == 0
    return Place(address, SMALL)


def grown():
    tensor = torch.empty(16)
    tensor.untyped_storage().resize_(SMALL)
    return tensor


def set_to_another():
    tensor, other = torch.empty(NBYTES, dtype=torch.uint8), torch.empty(SMALL, dtype=torch.uint8)
    tensor.set_(other)
    return tensor


def swapped():
    a, b = torch.empty(16), torch.empty(SMALL, dtype=torch.uint8)
    torch.utils.swap_tensors(a, b)
    return a


# ---- freed: where the memory was ----


class Place:
    """Memory, without a reference to its owner."""

    def __init__(self, address, nbytes):
        self.address, self.size = address, nbytes

    def data_ptr(self):
        return self.address

    def nbytes(self):
        return self.size


def place_of(tensor):
    return Place(untyped(tensor).data_ptr(), untyped(tensor).nbytes())


def freed():
    return place_of(torch.empty(NBYTES, dtype=torch.uint8))


def freed_untyped_storage():
    return place_of(torch.UntypedStorage(NBYTES))


def freed_numpy():
    return place_of(torch.from_numpy(numpy.zeros(NBYTES, dtype=numpy.uint8)))


def freed_shared():
    return place_of(torch.zeros(NBYTES, dtype=torch.uint8).share_memory_())


def freed_file():
    return place_of(from_file())


def emptied():
    tensor = torch.empty(NBYTES, dtype=torch.uint8)
    place = place_of(tensor)
    tensor.untyped_storage().resize_(0)
    return place


def outgrown():
    tensor = torch.empty(NBYTES, dtype=torch.uint8)
    place = place_of(tensor)
    tensor.untyped_storage().resize_(NBYTES + PAGE)
    return place


def set_away():
    tensor = torch.empty(NBYTES, dtype=torch.uint8)
    place = place_of(tensor)
    tensor.set_(torch.empty(16, dtype=torch.uint8))
    return place


def moved_to_shared_memory():
    tensor = torch.empty(NBYTES, dtype=torch.uint8)
    place = place_of(tensor)
    tensor.share_memory_()
    return place


def main():
    made = globals()[sys.argv[1]]()
    if sys.argv[2:]:
        import pytracer

        pytracer.enable(sys.argv[2])
    memory = made if isinstance(made, Place) else untyped(made)
    base = memory.data_ptr()
    page = (base + 2 * PAGE - 1) // PAGE * PAGE
    libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), 0)  # refused where nothing is mapped
    print(json.dumps({"base": base, "nbytes": memory.nbytes(), "offset": page + 24 - base}), flush=True)
    library.read_field(ctypes.c_void_p(page))


main()
