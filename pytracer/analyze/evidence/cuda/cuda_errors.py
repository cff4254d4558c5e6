"""CUDA errors in the last messages of a process: torch's exception, or the C++ exception of one of NCCL's threads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from pytracer.analyze.view import ProcessView

_TEXT = re.compile(r"CUDA error: ([^\n]+)|Cuda failure(?: \d+)? '([^'\n]+)'")
_OUT_OF_MEMORY = re.compile(r"^CUDA out of memory|CUDA error: out of memory")


@dataclass(frozen=True)
class CudaError:
    """CUDA's error. `sticky`: every later call fails with it, so the one that returns it need not be its cause."""

    text: str
    sticky: bool


# cuda_runtime_api.h, cudaError: those after which "the process must be terminated and relaunched".
_STICKY = (
    "an illegal memory access was encountered",
    "device-side assert triggered",
    "unspecified launch failure",
    "misaligned address",
    "an illegal instruction was encountered",
    "invalid program counter",
    "hardware stack error",
    "operation not supported on global/shared address space",
    "the launch timed out and was terminated",
    "uncorrectable ECC error encountered",
    "uncorrectable NVLink error detected",
    # Of libraries, whose calls return their own errors once a kernel has failed.
    "CUBLAS_STATUS_EXECUTION_FAILED",
    "CUBLAS_STATUS_INTERNAL_ERROR",
    "CUBLAS_STATUS_NOT_INITIALIZED",
)


def cuda_error(view: ProcessView) -> CudaError | None:
    """The CUDA error that ended the process, if its last message contains one."""
    if not (view.raised or view.crash is not None) or out_of_memory(view):
        return None
    return _error_in(_message(view))


@lru_cache(maxsize=4096)
def _error_in(message: str) -> CudaError | None:
    """Cached: thousands of ranks end with the same words."""
    match = _TEXT.search(message)
    if match is None:
        return None
    text = (match[1] or match[2]).strip()
    return CudaError(text, text.startswith(_STICKY))


def out_of_memory(view: ProcessView) -> bool:
    """Whether an allocator's request that a device could not satisfy ended the process."""
    return view.raised and _says_out_of_memory(_message(view))


@lru_cache(maxsize=4096)
def _says_out_of_memory(message: str) -> bool:
    return _OUT_OF_MEMORY.search(message) is not None


def _message(view: ProcessView) -> str:
    exception = view.exception
    return (exception.message if exception else None) or ""
