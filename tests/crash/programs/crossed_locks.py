"""Two threads that take two locks: in opposite orders; or in one order, with one of them at work inside of both."""

from __future__ import annotations

import sys
import threading
import time

stats_lock, model_lock = threading.Lock(), threading.Lock()
both_hold = threading.Barrier(2)


def log_stats() -> None:
    with stats_lock:
        both_hold.wait()
        with model_lock:
            print("logged")


def log_in_order() -> None:
    with model_lock, stats_lock:
        both_hold.wait()
        time.sleep(100)


def train(waits: bool) -> None:
    if waits:
        both_hold.wait()
    with model_lock:
        if not waits:
            both_hold.wait()
        with stats_lock:
            print("trained")


crossed = sys.argv[1] == "crossed"
threading.Thread(target=log_stats if crossed else log_in_order, daemon=True).start()
train(waits=not crossed)
