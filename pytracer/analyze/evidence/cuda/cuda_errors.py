"""CUDA errors in the last messages of a process: torch's exception, or the C++ exception of one of NCCL's threads."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.cuda.assertions import kernel_assertion
from pytracer.analyze.view import ProcessView

_TEXT = Pattern(r"CUDA error: ([^\n]+)|Cuda failure(?: \d+)? '([^'\n]+)'")
# Of others that call CUDA: only with a reason that is known to be a kernel's.
# Triton's, those of torch's calls of the driver, and CuPy's and Numba's, which have CUDA's own names before its words.
_OF_OTHERS = Pattern(
    r"(?:Triton Error \[CUDA\]|CUDA driver error|(?:CUDA_ERROR|cudaError)_?\w+(?: \(\d+\))?): ([^\n]+)"
)
_ASSERT = "device-side assert triggered"
_ILLEGAL = "an illegal memory access"
_MATH_LIBRARIES = "CUBLAS|CUDNN|CUFFT|CUSOLVER|CUSPARSE|CURAND"
OF_MATH_LIBRARY = Pattern(rf"\b(?:{_MATH_LIBRARIES})_\w+")
# What calls of libraries return once an assertion has failed: that of the kernel is the reason.
_OF_LIBRARIES = Pattern(rf"\b((?:{_MATH_LIBRARIES}|CUDA_ERROR|NVRTC)_\w+|unhandled cuda error)")
_OUT_OF_MEMORY = Pattern(r"^CUDA out of memory|CUDA error: out of memory")


class CudaError(msgspec.Struct, frozen=True):
    """CUDA's error. `sticky`: every later call fails with it, so the one that returns it need not be its cause."""

    text: str
    sticky: bool

    @property
    def is_assertion(self) -> bool:
        """Whether an assertion in a kernel failed."""
        return self.text.startswith(_ASSERT)

    @property
    def is_illegal_access(self) -> bool:
        """Whether a kernel used memory that it may not."""
        return self.text.startswith(_ILLEGAL)

    @property
    def is_of_library(self) -> bool:
        """Whether a library returned it, which does not say what the device met."""
        return _OF_LIBRARIES.match(self.text) is not None


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
    found = _error_in(_message(view))
    if (found is None or not found.is_assertion) and kernel_assertion(view) is not None:
        returned = _OF_LIBRARIES.search(_message(view))
        return CudaError(f"{_ASSERT}, returned as {returned[1]}", sticky=True) if returned else found
    return found


@lru_cache(maxsize=4096)
def _error_in(message: str) -> CudaError | None:
    """Cached: thousands of ranks end with the same words."""
    match, others = _TEXT.search(message), _OF_OTHERS.search(message)
    if match is not None:
        text = (match[1] or match[2]).strip()
        return CudaError(text, text.startswith(_STICKY))
    text = others[1].strip() if others is not None else ""
    return CudaError(text, sticky=True) if text.startswith(_STICKY) else None


def out_of_memory(view: ProcessView) -> bool:
    """Whether an allocator's request that a device could not satisfy ended the process."""
    return view.raised and _says_out_of_memory(_message(view))


@lru_cache(maxsize=4096)
def _says_out_of_memory(message: str) -> bool:
    return _OUT_OF_MEMORY.search(message) is not None


def _message(view: ProcessView) -> str:
    exception = view.exception
    return (exception.message if exception else None) or ""
