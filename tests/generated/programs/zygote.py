"""A process that has imported torch, and forks one child for each program that it is told: zygote.py < requests.

A request is a line of JSON: the program's path, and variables of the environment. The answer is the pid and the status.
Each child runs the program as its main module, as `python PROGRAM` would.
"""

import contextlib
import json
import os
import select
import signal
import sys
import types

import numpy  # noqa: F401
import torch  # noqa: F401

if "GENERATED_LIBRARIES" in os.environ:
    import kit  # noqa: F401

SECONDS = 60
answers = os.fdopen(os.dup(1), "w")
for line in iter(sys.stdin.buffer.readline, b""):
    request = json.loads(line)
    child = os.fork()
    if child == 0:
        break
    with open(os.pidfd_open(child), "rb", buffering=0) as handle:
        ended = select.select([handle], [], [], SECONDS)[0]
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what it left: workers that look for their parent every few seconds
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps({"pid": child, "status": status if ended else None}), file=answers, flush=True)
else:
    os._exit(0)

os.setsid()
os.environ.update(request["environment"])
os.chdir(os.path.dirname(request["program"]))
output = os.open("output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
for descriptor, kind in ((0, os.open(os.devnull, os.O_RDONLY)), (1, output), (2, output)):
    os.dup2(kind, descriptor)
sys.argv = [request["program"]]
main = types.ModuleType("__main__")
main.__file__ = request["program"]
sys.modules["__main__"] = main
with open(request["program"], encoding="utf-8") as file:
    code = compile(file.read(), request["program"], "exec")
exec(code, main.__dict__)  # noqa: S102
