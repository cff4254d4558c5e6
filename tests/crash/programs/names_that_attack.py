"""Uses names with terminal escapes, of threads, files, functions, exceptions; then dies in the given way."""

import ctypes
import os
import signal
import sys
import threading

libc = ctypes.CDLL(None)
PR_SET_NAME = 15
ESCAPES = "\x1b]0;TITLE\x07\x1b[2J\x1b[31mEVIL\x1b[0m"


def named_thread(ready: threading.Event) -> None:
    libc.prctl(PR_SET_NAME, b"\x1b[32mT\rZ", 0, 0, 0)
    ready.set()
    threading.Event().wait()


def raise_it() -> None:
    import torch  # noqa: F401  exceptions are recorded in programs that use it

    class E(Exception):
        pass

    E.__name__ = E.__qualname__ = "E\x1b[33mX"
    raise E(f"message {ESCAPES}\nnext     rm -rf / # fake row\n\u202e\ud800 \x9b31m")


def main(how: str) -> None:
    libc.prctl(PR_SET_NAME, b"\x1b[31mX\nY", 0, 0, 0)
    ready = threading.Event()
    threading.Thread(target=named_thread, args=(ready,), daemon=True).start()
    ready.wait()
    if how == "fault":
        source = "def g\u00e9():\n  import ctypes\n  ctypes.string_at(8)\n"
        code = compile(source, "/tmp/\x1b[35mfi\nle\u202e.py", "exec")
        space: dict[str, object] = {}
        exec(code, space)  # noqa: S102
        space["g\u00e9"]()  # type: ignore[operator]
    if how == "exception":
        raise_it()
    if how == "signal":
        os.kill(os.getpid(), signal.SIGTERM)
    if how == "assertion":
        libc.__assert_fail(b"condition " + ESCAPES.encode(), b"fi\x1b[31mle.c", 3, b"fun\x1b[1mction")


main(sys.argv[1])
