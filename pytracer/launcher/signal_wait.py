"""Waits for signals and says who sent them: sigtimedwait(2), called directly.

`signal.sigtimedwait` of CPython cannot be used with a timeout: when stopping and continuing the process interrupts it
after its time is up, it returns a siginfo that nobody filled in (3.10 to 3.14, Modules/signalmodule.c,
signal_sigtimedwait_impl: the loop is left with errno EINTR, and `si` is what the stack held).
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import signal
import time
from collections.abc import Collection
from dataclasses import dataclass

SI_KERNEL = 0x80  # siginfo.si_code of what the kernel sends of its own accord (asm-generic/siginfo.h)
EVERY = frozenset(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}


@dataclass(frozen=True)
class Received:
    """A signal that was taken. `sender` is a pid, and only meaningful when a process sent it (`code` of 0 or less)."""

    number: int
    code: int
    sender: int


class _Siginfo(ctypes.Structure):
    # The beginning of siginfo_t on 64-bit Linux; sigtimedwait writes 128 bytes.
    _fields_ = (
        ("number", ctypes.c_int),
        ("error", ctypes.c_int),
        ("code", ctypes.c_int),
        ("padding", ctypes.c_int),
        ("sender", ctypes.c_int),
        ("user", ctypes.c_uint),
        ("rest", ctypes.c_char * 104),
    )


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def next_signal(signals: Collection[int], seconds: float | None) -> Received | None:
    """Takes one pending signal of `signals`, which must be blocked; waits for it when there is none.

    Args:
        signals: what to wait for.
        seconds: None waits for ever.

    Returns:
        None when the time is up.
    """
    until = None if seconds is None else time.monotonic() + seconds
    info = _Siginfo()
    wanted = _set_of(frozenset(signals))
    while True:
        left = None if until is None else max(0.0, until - time.monotonic())
        wait = None if left is None else ctypes.byref(_Timespec(int(left), int(left % 1 * 1e9)))
        number = _libc().sigtimedwait(wanted, ctypes.byref(info), wait)
        if number > 0:
            return Received(number, info.code, info.sender)
        error = ctypes.get_errno()
        if error == errno.EAGAIN:
            return None
        if error != errno.EINTR:
            raise OSError(error, os.strerror(error))


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@functools.cache
def _set_of(signals: frozenset[int]) -> ctypes.Array[ctypes.c_uint64]:
    """sigset_t of glibc and musl: 1024 bits, signal n is bit n - 1."""
    words = (ctypes.c_uint64 * 16)()
    for number in signals:
        words[(number - 1) // 64] |= 1 << (number - 1) % 64
    return words
