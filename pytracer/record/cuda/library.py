"""libpytracer_cuda through ctypes: the C interface of csrc/cuda/library.h, and the core's for devices."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from pytracer._torch_libraries import Libraries
from pytracer.record import c_interface
from pytracer.record.c_interface import Function
from pytracer.record.core import Core

_OBJECT, _INT, _NUMBER, _WIDE, _TEXT = ctypes.py_object, ctypes.c_int, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_char_p
_FUNCTIONS = (
    Function("torch_version", _TEXT),
    Function("set_call_site", None, (_WIDE,)),
    Function("attach", _OBJECT),
    Function("follow", None, (_INT,)),
    Function("is_deaf", _INT),
    Function("install_stream_probe", None),
    Function("follow_operators", None, (_INT,)),
    Function("record_launch", None, (_TEXT, ctypes.POINTER(_WIDE), _NUMBER)),
    Function("watch_assertions", None),
    Function("ask_streams", _INT),
    Function("lock_streams", None, (_INT,)),
    Function("begin_capture", _NUMBER, (_WIDE, _WIDE)),
    Function("end_capture", None, (_NUMBER, _INT, _WIDE, _WIDE)),
    Function("reset", None, (_NUMBER,)),
    Function("replayed", _OBJECT),
)
_FUNCTIONS_OF_CORE = (
    Function("device_events", _NUMBER),
    Function("graph_name", None, (_NUMBER, _NUMBER)),
    Function("progress_read", None),
    Function("group_scheduled", _WIDE, (_TEXT,)),
    Function("group_reached", None, (_TEXT, _WIDE, _NUMBER)),
)


class CudaLibrary:
    """The CUDA hooks for a torch, loaded and not attached.

    Raises:
        OSError: the library does not exist, does not load, or was built for another torch.
    """

    def __init__(self, libraries: Libraries, core: Core) -> None:
        path = libraries.path("cuda")
        self._lib = c_interface.load(path)
        self._core = core.held
        c_interface.declare(self._lib, "pytracer_cuda_", _FUNCTIONS)
        c_interface.declare(self._core, "pytracer_", _FUNCTIONS_OF_CORE)
        if self.torch_version != libraries.built_for:
            raise OSError(f"{path} was built for torch {self.torch_version}")
        self.replayed: Callable[[int], int] = self._lib.pytracer_cuda_replayed()
        """A CUDA graph, by its number, is launched: how many of its inputs are not live. A builtin, for its speed."""

    @property
    def torch_version(self) -> str:
        """What the library was built for, as TorchLibrary.torch_version."""
        return str(self._lib.pytracer_cuda_torch_version().decode())

    def set_call_site(self, function: int) -> None:
        """`function`: the address of the one that returns the call site of the calling thread."""
        self._lib.pytracer_cuda_set_call_site(function)

    def attach(self) -> str:
        """Follows the caching allocator, after CUDA was initialized; once. Returns why it cannot, or ""."""
        return str(self._lib.pytracer_cuda_attach())

    def follow(self, on: bool) -> None:
        """Switches the recording of the allocator: it cannot be detached."""
        self._lib.pytracer_cuda_follow(on)

    def is_deaf(self) -> bool:
        """Whether the allocator has allocated blocks and never called the tracker."""
        return bool(self._lib.pytracer_cuda_is_deaf())

    def install_stream_probe(self) -> None:
        """From now on records contain the current CUDA stream of their thread."""
        self._lib.pytracer_cuda_install_stream_probe()

    def follow_operators(self, follow: bool) -> None:
        """From now on every operator is recorded with its call site, CUDA stream and device memory, or no longer."""
        self._lib.pytracer_cuda_follow_operators(follow)

    def record_launch(self, name: str, storages: Sequence[int]) -> None:
        """The same for one kernel that Python launches without an operator. `storages`: device addresses."""
        addresses = (_WIDE * len(storages))(*storages)
        self._lib.pytracer_cuda_record_launch(name.encode("utf-8", "replace"), addresses, len(storages))

    def ask_streams(self) -> int:
        """Queries all known CUDA streams, without the GIL. The cudaError_t of one that failed; 0: none did."""
        return int(self._lib.pytracer_cuda_ask_streams())

    def lock_streams(self, lock: bool) -> None:
        """Keeps `ask_streams` away while captures begin and end."""
        self._lib.pytracer_cuda_lock_streams(lock)

    def begin_capture(self, pool_graph: int, pool_number: int) -> int:
        """A capture on the current CUDA stream begins: the number of its CUDA graph, 0 if it is not recorded."""
        return int(self._lib.pytracer_cuda_begin_capture(pool_graph, pool_number))

    def end_capture(self, number: int, captured: bool, pool_graph: int, pool_number: int) -> None:
        """The capture has ended; `captured` is false when it failed."""
        self._lib.pytracer_cuda_end_capture(number, captured, pool_graph, pool_number)

    def reset(self, number: int) -> None:
        """The CUDA graph was reset or destroyed."""
        self._lib.pytracer_cuda_reset(number)

    def name(self, number: int, name_id: int) -> None:
        """Names a CUDA graph; `name_id` is a journal entry."""
        self._core.pytracer_graph_name(number, name_id)

    def watch_assertions(self) -> None:
        """From now on what assertions of kernels print is recorded, which no call returns."""
        self._lib.pytracer_cuda_watch_assertions()

    def events(self) -> int:
        """How many events of allocators were recorded."""
        return int(self._core.pytracer_device_events())

    def progress_read(self) -> None:
        """The progress of the devices was just queried, with success."""
        self._core.pytracer_progress_read()

    def group_scheduled(self, group: str) -> int:
        """The number of the last collective of a group that was called; 0: none, or the call has not returned."""
        return int(self._core.pytracer_group_scheduled(group.encode("utf-8", "replace")))

    def group_reached(self, group: str, sequence_nr: int, state: int) -> None:
        """All collectives of a group up to `sequence_nr` have reached `state` (schema.CollectiveState)."""
        self._core.pytracer_group_reached(group.encode("utf-8", "replace"), sequence_nr, state)
