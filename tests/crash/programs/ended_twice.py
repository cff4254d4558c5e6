"""Two threads are ended at once, as by a tool that signals a process and then its group."""

import signal
import threading
import time

import torch


def wait_here():
    time.sleep(60)


if __name__ == "__main__":
    torch.ones(8).sum()
    other = threading.Thread(target=wait_here)
    other.start()

    def end():
        time.sleep(0.3)
        for thread in (other, threading.main_thread()):
            signal.pthread_kill(thread.ident, signal.SIGTERM)

    threading.Thread(target=end).start()
    wait_here()
