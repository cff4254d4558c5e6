"""Dies in the given way: matrix_victim.py KIND PLACE [STATE]. One cell of the crash matrix."""

import atexit
import ctypes
import errno
import os
import resource
import sys
import tempfile
import threading

STORAGE_NBYTES = 256 << 20  # never touched; malloc maps it, and free() unmaps it, whatever its thresholds are
SPACER_NBYTES = 128 << 20
PAGE = 4096
STORAGES = ("freed-storage", "past-end", "before-begin")

kind, place, state = sys.argv[1], sys.argv[2], (sys.argv + [""])[3]
if kind in STORAGES or place in ("autograd-thread", "dataloader-worker"):
    import torch  # first: our library then uses torch's OpenMP and does not load another one
library = ctypes.CDLL(os.environ["MATRIX_LIBRARY"])
library.matrix_map.restype = ctypes.c_void_p


# ---- storages with nothing mapped beside them ----


def new_storage():
    tensor = torch.empty(STORAGE_NBYTES, dtype=torch.uint8)
    return tensor, tensor.data_ptr()


def is_mapped(address):
    return library.matrix_is_mapped(ctypes.c_void_p(address)) != 0


def aim(address, spacer=0, spacer_nbytes=0):
    library.matrix_aim(ctypes.c_void_p(address), ctypes.c_void_p(spacer), ctypes.c_size_t(spacer_nbytes))


def aim_at_freed():
    _, address = new_storage()
    aim(address + STORAGE_NBYTES // 2)


def aim_past_end():
    kept = []  # the kernel fills holes from the top: until the spacer and the storage are adjacent
    while len(kept) < 64:
        spacer = library.matrix_map(ctypes.c_size_t(SPACER_NBYTES))
        tensor, address = new_storage()
        kept.append(tensor)
        end = (address + STORAGE_NBYTES + PAGE - 1) & -PAGE
        if end == spacer:
            aim(end, spacer, SPACER_NBYTES)
            return kept
    raise SystemExit("no storage lies below a hole")


def aim_before_begin():
    kept = []
    while len(kept) < 64:
        tensor, address = new_storage()
        kept.append(tensor)
        before = (address & -PAGE) - 64
        if not is_mapped(before & -PAGE):
            aim(before)
            return kept
    raise SystemExit("no storage lies above a hole")


def aimed(kind):
    """What must stay alive until the access."""
    return {"freed-storage": aim_at_freed, "past-end": aim_past_end, "before-begin": aim_before_begin}[kind]()


# ---- places ----


def die(kind):
    kept = aimed(kind) if kind in STORAGES else None
    library.matrix_die(kind.encode())
    return kept


def on_main_thread(kind):
    die(kind)


def on_python_thread(kind):
    thread = threading.Thread(target=die, args=(kind,), name="collate")
    thread.start()
    thread.join()


def on_raw_thread(kind):
    library.matrix_start_raw_thread()
    kept = aimed(kind) if kind in STORAGES else None
    library.matrix_die_on_raw_thread(kind.encode())
    return kept


def on_openmp_worker(kind):
    library.matrix_start_openmp()
    kept = aimed(kind) if kind in STORAGES else None
    library.matrix_die_on_openmp_worker(kind.encode())
    return kept


def on_autograd_thread(kind):
    class Nested(torch.autograd.Function):
        """Backward inside backward: beyond 60 levels the engine continues on a thread of its pool."""

        @staticmethod
        def forward(ctx, x, levels):
            ctx.levels = levels
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            if ctx.levels == 0:
                die(kind)
            with torch.enable_grad():
                inner = Nested.apply(torch.ones(2, requires_grad=True), ctx.levels - 1).sum()
            inner.backward()
            return gradient, None

    Nested.apply(torch.ones(2, requires_grad=True), 70).sum().backward()


def in_dataloader_worker(kind):
    from torch.utils.data import DataLoader, Dataset

    class Samples(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            if index == 5:
                die(kind)
            return torch.full((4,), float(index))

    torch.set_num_threads(1)
    for batch in DataLoader(Samples(), batch_size=2, num_workers=1, multiprocessing_context="fork"):
        batch.sum()


PLACES = {
    "main": on_main_thread,
    "python-thread": on_python_thread,
    "openmp-worker": on_openmp_worker,
    "autograd-thread": on_autograd_thread,
    "dataloader-worker": in_dataloader_worker,
    "raw-thread": on_raw_thread,
}


# ---- states: what the process is in when it dies ----


def inside_malloc(kind, act):
    library.matrix_die_in_malloc(kind.encode())


def inside_dlopen(kind, act):
    os.environ["MATRIX_KIND"] = kind
    ctypes.CDLL(os.environ["MATRIX_DIES_WHILE_LOADING"])


def gil_held(kind, act):
    global library
    library = ctypes.PyDLL(os.environ["MATRIX_LIBRARY"])
    act(kind)


def during_import(kind, act):
    with open("matrix_module.py", "w", encoding="utf-8") as file:
        file.write("from __main__ import act, kind\nact(kind)\n")
    sys.path.insert(0, os.getcwd())
    import matrix_module  # noqa: F401


def at_exit_of_python(kind, act):
    atexit.register(act, kind)


def at_exit_of_c(kind, act):
    library.matrix_die_at_exit(kind.encode())


def after_fork(kind, act):
    pid = os.fork()
    if pid == 0:
        act(kind)
    _, status = os.waitpid(pid, 0)
    sys.exit(128 - os.waitstatus_to_exitcode(status))


def inside_signal_handler(kind, act):
    library.matrix_die_in_signal_handler(kind.encode())


def cwd_deleted(kind, act):
    directory = tempfile.mkdtemp()
    os.chdir(directory)
    os.rmdir(directory)
    act(kind)


def stdio_closed(kind, act):
    for fd in range(3):
        os.close(fd)
    act(kind)


def no_space_left(kind, act):
    """Fills the disk of the run directory, or, where it is not a small one, forbids files to grow."""
    directory = os.environ["MATRIX_DIRECTORY"]
    if os.environ["MATRIX_SMALL_DISK"] == "1":
        fill(os.path.join(directory, "filler"))
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    try:
        with open(os.path.join(directory, "one more"), "wb", buffering=0) as file:
            file.write(bytes(PAGE))
    except OSError as error:
        assert error.errno in (errno.ENOSPC, errno.EFBIG), error
        act(kind)
    raise SystemExit("there is room left")


def fill(path):
    with open(path, "wb", buffering=0) as file:
        for nbytes in (1 << 20, PAGE):
            try:
                while file.write(bytes(nbytes)) == nbytes:
                    pass
            except OSError as error:
                assert error.errno == errno.ENOSPC, error


def no_descriptors_left(kind, act):
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    try:
        os.open("/dev/null", os.O_RDONLY)
    except OSError as error:
        assert error.errno == errno.EMFILE, error
        act(kind)
    raise SystemExit("there are descriptors left")


def ptrace_forbidden(kind, act):
    """The test has started us under a filter."""
    assert ctypes.CDLL(None).ptrace(0, 0, 0, 0) == -1, "ptrace works"
    beside_another_thread(kind, act)


def beside_another_thread(kind, act):
    threading.Thread(target=threading.Event().wait, name="prefetch", daemon=True).start()
    act(kind)


def plain(kind, act):
    act(kind)


STATES = {
    "": plain,
    "inside malloc": inside_malloc,
    "inside dlopen": inside_dlopen,
    "GIL held": gil_held,
    "GIL released": plain,  # ctypes.CDLL releases it
    "during import": during_import,
    "at exit, Python": at_exit_of_python,
    "at exit, C": at_exit_of_c,
    "after fork": after_fork,
    "inside a signal handler": inside_signal_handler,
    "cwd deleted": cwd_deleted,
    "stdio closed": stdio_closed,
    "RLIMIT_CORE 0": plain,
    "RLIMIT_CORE unlimited": plain,
    "no space left": no_space_left,
    "fd limit reached": no_descriptors_left,
    "ptrace forbidden": ptrace_forbidden,
    "below the launcher": beside_another_thread,
}

act = PLACES[place]
STATES[state](kind, act)
