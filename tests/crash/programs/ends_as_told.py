"""Ends in the given way: ends_as_told.py exit|_exit|kill|terminate|raise|child-killed."""

import os
import signal
import subprocess
import sys

print("output without a newline at its end", end="", flush=True)
how = sys.argv[1]
if how == "exit":
    sys.exit(3)
elif how == "_exit":
    os._exit(4)
elif how == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
elif how == "terminate":
    os.kill(os.getpid(), signal.SIGTERM)
elif how == "raise":
    raise LookupError("no such shard")
elif how == "child-killed":
    child = subprocess.run(["sh", "-c", "kill -KILL $$"])
    sys.exit(128 - child.returncode)
