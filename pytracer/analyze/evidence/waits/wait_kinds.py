"""The kinds of waits, each with its words, and the wait of one process."""

from __future__ import annotations

from typing import Literal

import msgspec

from pytracer.report.job import PythonFrame

WaitKind = Literal[
    "forked-openmp",
    "forked-lock",
    "forked-notice",
    "forked-tasks",
    "forked-native",
    "lock",
    "lock-file",
    "flock",
    "debugger",
    "input",
    "open",
    "child",
    "unread-queue",
    "thread-at-exit",
    "thread",
    "workers",
    "executor",
    "queue",
    "full-queue",
    "message",
    "full-pipe",
    "full-output",
    "pool",
    "notice",
    "barrier",
    "undone",
    "nodes",
    "event-loop",
    "network",
    "accept",
    "answer",
    "device",
    "driver",
    "gil",
]
# With "rank 1" before.
WAITED: dict[WaitKind, str] = {
    "forked-openmp": "waited in the OpenMP runtime of a forked child",
    "forked-lock": "waited in a forked child for a lock that nobody there holds",
    "forked-notice": "waited in a forked child for a thread that exists in its parent only",
    "forked-tasks": "waited in a forked child for inter-op threads of torch, which its parent alone has,",
    "forked-native": "waited in native code of a forked child for threads that its parent alone has,",
    "lock": "waited for a lock",
    "lock-file": "waited for a lock file",
    "flock": "waited for a file lock",
    "debugger": "waited for input to the debugger",
    "input": "waited for input",
    "open": "was in open()",
    "child": "waited for a child process",
    "unread-queue": "waited until what it had put into a queue is read",
    "thread-at-exit": "had come to its end, and waited for a thread that is no daemon",
    "thread": "waited for a thread",
    "workers": "waited for the workers of a process pool",
    "executor": "waited for a thread of an executor that it shuts down, which was",
    "queue": "waited for a queue",
    "full-queue": "waited for room in a full queue",
    "message": "waited for a message from the other end of a connection",
    "full-pipe": "waited until the other end of a pipe reads",
    "full-output": "waited to write to its standard output, a pipe that is not read,",
    "pool": "waited for the result of a pool's task",
    "notice": "waited for a Condition, an Event or a Future",
    "barrier": "waited at a Barrier",
    "nodes": "waited in its rendezvous for the other nodes of the job",
    "undone": "waited until every item of a queue is done",
    "event-loop": "waited in the event loop of asyncio",
    "network": "waited for data from a socket, without a time limit,",
    "accept": "waited in accept() for somebody to connect",
    "answer": "waited for what a child prints",
    "device": "waited for the CUDA device",
    "driver": "was in a call of the CUDA driver",
    "gil": "waited in native code for threads that may need the GIL",
}
OF_DEVICE: tuple[WaitKind, ...] = ("device", "driver")


class ProcessWait(msgspec.Struct, frozen=True):
    """What it waited for, and the line of the program itself."""

    kind: WaitKind
    at: PythonFrame | None
    thread: str | None = None  # that is waited for
