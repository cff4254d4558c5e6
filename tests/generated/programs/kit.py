"""What all generated programs share: the native library, memory of every origin, threads to die on, and last words."""

import atexit
import ctypes
import json
import mmap
import os
import random
import sys
import tempfile
import threading

import torch

DIRECTORY = os.environ["GENERATED_LIBRARIES"]
lib = ctypes.CDLL(os.path.join(DIRECTORY, "libaccess.so"))
pointer, number = ctypes.c_void_p, ctypes.c_long
for name in ("map_memory",):
    getattr(lib, name).restype = pointer
lib.map_memory.argtypes = [number, ctypes.c_int]
lib.unmap_memory.argtypes = [pointer, number]
lib.protect_memory.argtypes = [pointer, number, ctypes.c_int]
lib.plan_access.argtypes = [pointer, pointer, number]
for name in [
    "load",
    "store",
    "load_field",
    "load_index",
    "store_index",
    "load_byte_index",
    "load_folded",
    "store_folded",
    "vector",
    "vector_aligned",
    "vector_store_aligned",
    "sum_up",
    "fill_up",
    "sum_down",
    "fill_down",
    "sum_stack",
    "clear",
    "clear_by_string",
    "copy_out",
    "copy_in",
    "recurse",
    "call_pointer",
    "smash_return",
    "call_abort",
    "fail_assertion",
    "leave_exception",
    "undefined_instruction",
    "divide",
    "free_twice",
    "free_inside",
    "overflow_block",
    "free_foreign",
]:
    getattr(lib, name).argtypes = [pointer, number]
lib.gather.argtypes = lib.scatter.argtypes = [pointer, pointer, number, pointer]
CALLBACK = ctypes.CFUNCTYPE(number, number)
lib.call_back.argtypes = [CALLBACK, number]
lib.call_back.restype = number

PAGE = 4096
kept = []  # alive until the end


# ---- last words: what the judge compares the report with ----


def say(**words):
    """One line of JSON, whoever writes it."""
    with open(os.environ["GENERATED_NOTE"], "a", encoding="utf-8") as file:
        file.write(json.dumps(words) + "\n")


def about(tensor):
    """The storage that the error is about."""
    storage = tensor.untyped_storage()
    say(base=storage.data_ptr(), nbytes=storage.nbytes())


def begin():
    """Starts recording, where the program does that itself."""
    directory = os.environ.get("GENERATED_ENABLE")
    if directory:
        import pytracer

        pytracer.enable(directory)


# ---- memory ----


def new_file(nbytes):
    """A file of zeros beside the recording."""
    handle, path = tempfile.mkstemp(suffix=".bin", dir=os.path.dirname(os.environ["GENERATED_NOTE"]))
    os.truncate(handle, nbytes)
    os.close(handle)
    return path


def new_mapping(nbytes):
    """Anonymous memory that no allocator knows."""
    return lib.map_memory(nbytes, 1)


def from_blob(at, count):
    """at::from_blob()."""
    library = ctypes.PyDLL(os.path.join(DIRECTORY, "libfrom_blob.so"))
    library.from_blob.restype = ctypes.py_object
    library.from_blob.argtypes = [number, number]
    return library.from_blob(at, count)


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", pointer), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", pointer), ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", pointer), ("deleter", pointer)]


def from_dlpack(at, count):
    """A float tensor over memory of another library, by DLPack."""
    shape = (ctypes.c_int64 * 1)(count)
    managed = _Managed(_Tensor(at, 1, 0, 1, 2, 32, 1, shape, None, 0), None, None)
    kept.append((shape, managed))
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [pointer, ctypes.c_char_p, pointer]
    return torch.utils.dlpack.from_dlpack(make(ctypes.addressof(managed), b"dltensor", None))


def take_hole(at, nbytes):
    """Maps memory without rights where memory was given back: as thread arenas and reservations do."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype = pointer
    libc.mmap.argtypes = [pointer, number, ctypes.c_int, ctypes.c_int, ctypes.c_int, number]
    begin = (at & -PAGE) - 16 * PAGE
    for start in (begin, at & -PAGE):
        # MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE
        if libc.mmap(start, nbytes // 2, 0, 0x2 | 0x20 | 0x4000 | 0x100000, -1, 0) == start:
            return
    raise SystemExit("the hole is taken")


def is_mapped(at):
    """Whether the page of an address is mapped."""
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.msync(ctypes.c_void_p(at & -PAGE), ctypes.c_size_t(PAGE), 1) == 0


def unmapped_address(seed):
    """A canonical address far from everything that is mapped."""
    numbers = random.Random(seed)
    with open("/proc/self/maps", encoding="utf-8") as file:
        taken = [tuple(int(part, 16) for part in line.split()[0].split("-")) for line in file]
    while True:
        at = numbers.randrange(1 << 33, 1 << 47)
        if all(not begin - (1 << 36) <= at < end + (1 << 36) for begin, end in taken):
            return at


# ---- threads ----


def die(thread, arrange, touch, inside):
    """Lays out the memory and touches it, on the thread that is to die. `inside`: arranged there, too."""
    PLACES[thread](arrange, touch, inside)


def _both(arrange, touch):
    arrange()
    _last(touch)


def _last(touch):
    say(pid=os.getpid())
    touch()
    say(survived=True)


def _on_main(arrange, touch, inside):
    _both(arrange, touch)


def _on_python_thread(arrange, touch, inside):
    go = threading.Event()

    def work():
        bytearray(1 << 20)
        go.wait()
        if inside:
            arrange()
        _last(touch)

    thread = threading.Thread(target=work, name="collate")
    thread.start()
    if not inside:
        arrange()
    go.set()
    thread.join()


def _on_native_thread(arrange, touch, inside):
    lib.start_native_thread()
    _both(arrange, touch)


def _on_openmp_worker(arrange, touch, inside):
    lib.start_openmp()
    _both(arrange, touch)


def _in_backward(arrange, touch, inside):
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            if inside:
                arrange()
            _last(touch)
            return gradient * 2

    if not inside:
        arrange()
    Scaled.apply(torch.ones(2, requires_grad=True)).sum().backward()


class Samples(torch.utils.data.Dataset):
    def __init__(self, arrange, touch):
        self.arrange, self.touch = arrange, touch

    def __len__(self):
        return 6

    def __getitem__(self, index):
        if index == 3:
            _both(self.arrange, self.touch)
        return torch.full((4,), float(index))


def _in_loader_worker(arrange, touch, inside):
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(Samples(arrange, touch), 2, num_workers=1, multiprocessing_context="fork")
    for batch in loader:
        batch.sum()


def _in_forked_child(arrange, touch, inside):
    if not inside:
        arrange()
    pid = os.fork()
    if pid == 0:
        if inside:
            arrange()
        _last(touch)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    os._exit(128 - os.waitstatus_to_exitcode(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


def _in_spawned_child(arrange, touch, inside):
    child = torch.multiprocessing.get_context("spawn").Process(target=_both, args=(arrange, touch))
    child.start()
    child.join()
    sys.exit(128 - child.exitcode if child.exitcode < 0 else child.exitcode)


PLACES = {
    "main": _on_main,
    "python-thread": _on_python_thread,
    "native-thread": _on_native_thread,
    "openmp-worker": _on_openmp_worker,
    "autograd": _in_backward,
    "dataloader-worker": _in_loader_worker,
    "forked-child": _in_forked_child,
    "spawned-child": _in_spawned_child,
}


# ---- others who kill ----


def be_killed(signal_number):
    """Another process sends a signal to this one."""
    say(pid=os.getpid())
    os.spawnlp(os.P_NOWAIT, "sh", "sh", "-c", f"kill -{signal_number} {os.getpid()}")
    import time

    time.sleep(20)


__all__ = ["atexit", "ctypes", "mmap"]
