"""Prints to standard output, or to the file HEARD, which signals reach it, and which lines it reads.

Arguments: signals to listen to, the others keep their default. Ends when it reads "end" or, with status 5, on SIGTERM.
"""

import os
import signal
import sys
import time

file = os.open(os.environ["HEARD"], os.O_WRONLY | os.O_CREAT | os.O_APPEND) if "HEARD" in os.environ else 1


def say(words: str) -> None:
    os.write(file, f"[{words}]\n".encode())


def heard(number: int, _: object) -> None:
    say(signal.Signals(number).name)
    if number == signal.SIGTERM:
        os._exit(5)


for name in sys.argv[1:]:
    signal.signal(getattr(signal, name), heard)
say(f"ready {os.getpid()}")
while True:
    try:
        line = os.read(0, 100).decode().strip()
    except OSError:
        line = "hung up"
    if line == "end":
        say("ending")
        sys.exit(0)
    if line in ("hung up", ""):  # the terminal has gone, or standard input is no terminal
        while True:
            time.sleep(0.05)  # pause() would miss a signal that came just before
    say(f"read {line}")
