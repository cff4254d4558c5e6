"""Names of signals and signal codes, as numbered by Linux on x86-64 and aarch64.

The `signal` module is not used: reports are read on other systems, where SIGBUS is not 7.
"""

from __future__ import annotations

SIGHUP, SIGINT, SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGKILL = range(1, 10)
SIGUSR1, SIGSEGV, SIGUSR2, SIGPIPE, SIGALRM, SIGTERM, SIGSYS = 10, 11, 12, 13, 14, 15, 31
SIGXCPU, SIGXFSZ, SIGVTALRM, SIGPROF = 24, 25, 26, 27
SI_USER, SI_KERNEL, SI_TIMER = 0, 128, -2

_NAMES = {
    1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE",
    9: "SIGKILL", 10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM",
    16: "SIGSTKFLT", 17: "SIGCHLD", 18: "SIGCONT", 19: "SIGSTOP", 20: "SIGTSTP", 21: "SIGTTIN", 22: "SIGTTOU",
    23: "SIGURG", 24: "SIGXCPU", 25: "SIGXFSZ", 26: "SIGVTALRM", 27: "SIGPROF", 28: "SIGWINCH", 29: "SIGIO",
    30: "SIGPWR", 31: "SIGSYS",
}  # fmt: skip
_COMMON_CODES = {0: "SI_USER", 128: "SI_KERNEL", -1: "SI_QUEUE", -2: "SI_TIMER", -3: "SI_MESGQ", -6: "SI_TKILL"}
_CODES = {
    SIGILL: ("ILL_ILLOPC", "ILL_ILLOPN", "ILL_ILLADR", "ILL_ILLTRP", "ILL_PRVOPC", "ILL_PRVREG", "ILL_COPROC"),
    SIGTRAP: ("TRAP_BRKPT", "TRAP_TRACE", "TRAP_BRANCH", "TRAP_HWBKPT"),
    SIGBUS: ("BUS_ADRALN", "BUS_ADRERR", "BUS_OBJERR", "BUS_MCEERR_AR", "BUS_MCEERR_AO"),
    SIGFPE: ("FPE_INTDIV", "FPE_INTOVF", "FPE_FLTDIV", "FPE_FLTOVF", "FPE_FLTUND", "FPE_FLTRES", "FPE_FLTINV"),
    SIGSEGV: ("SEGV_MAPERR", "SEGV_ACCERR", "SEGV_BNDERR", "SEGV_PKUERR"),
    SIGSYS: ("SYS_SECCOMP", "SYS_USER_DISPATCH"),
}


def signal_name(number: int) -> str:
    """E.g. `SIGSEGV`; `SIGRTMIN+2` for real-time signals."""
    if 34 <= number <= 64:
        return "SIGRTMIN" + (f"+{number - 34}" if number > 34 else "")
    return _NAMES.get(number, f"signal {number}")


def code_name(number: int, code: int) -> str:
    """E.g. `SEGV_MAPERR`, or `SI_TKILL` for a signal that was sent."""
    names = _CODES.get(number, ())
    if 1 <= code <= len(names):
        return names[code - 1]
    return _COMMON_CODES.get(code, f"code {code}")
