"""Starts a process in its own session that uses torch and then stands still; prints its pid and fails."""

import subprocess
import sys
import time

import torch


def stands():
    print("ready", flush=True)
    time.sleep(120)


if __name__ == "__main__":
    if sys.argv[1:]:
        held = torch.ones(4)
        stands()
    child = subprocess.Popen(
        [sys.executable, __file__, "child"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    child.stdout.readline()
    print(child.pid, flush=True)
    sys.exit(3)
