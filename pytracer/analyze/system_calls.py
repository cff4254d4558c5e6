"""Names of the system calls in which threads wait, as numbered by Linux on x86-64 and aarch64."""

from __future__ import annotations

# arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux 6.x.
_X86_64 = {
    0: "read", 1: "write", 7: "poll", 8: "lseek", 9: "mmap", 10: "mprotect", 11: "munmap", 16: "ioctl", 17: "pread64",
    18: "pwrite64", 19: "readv", 20: "writev", 23: "select", 24: "sched_yield", 26: "msync", 28: "madvise",
    34: "pause", 35: "nanosleep", 42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg",
    47: "recvmsg", 61: "wait4", 72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync", 128: "rt_sigtimedwait",
    130: "rt_sigsuspend", 202: "futex", 230: "clock_nanosleep", 232: "epoll_wait", 247: "waitid", 257: "openat",
    270: "pselect6", 271: "ppoll", 281: "epoll_pwait", 285: "fallocate", 288: "accept4", 299: "recvmmsg",
    426: "io_uring_enter", 441: "epoll_pwait2", 449: "futex_waitv",
}  # fmt: skip
_AARCH64 = {
    22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 32: "flock", 47: "fallocate", 56: "openat", 63: "read", 64: "write",
    65: "readv", 66: "writev", 67: "pread64", 68: "pwrite64", 72: "pselect6", 73: "ppoll", 82: "fsync",
    83: "fdatasync", 95: "waitid", 98: "futex", 101: "nanosleep", 115: "clock_nanosleep", 124: "sched_yield",
    133: "rt_sigsuspend", 137: "rt_sigtimedwait", 202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom",
    211: "sendmsg", 212: "recvmsg", 215: "munmap", 222: "mmap", 226: "mprotect", 227: "msync", 233: "madvise",
    242: "accept4", 243: "recvmmsg", 260: "wait4", 426: "io_uring_enter", 441: "epoll_pwait2", 449: "futex_waitv",
}  # fmt: skip


def system_call_name(number: int, arch: str) -> str:
    """E.g. `futex`; the number for those without a name here."""
    names = _AARCH64 if arch == "aarch64" else _X86_64
    return names.get(number, str(number))
