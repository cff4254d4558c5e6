"""What to do about a wait that did not end, by what was waited for."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer._text import shortened, uncapital
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of
from pytracer.analyze.evidence.waits.ended_fillers import ended_filler
from pytracer.analyze.evidence.waits.executor_words import executor_advice
from pytracer.analyze.evidence.waits.forked_locks import forked_lock
from pytracer.analyze.evidence.waits.forked_pool_words import pool_advice
from pytracer.analyze.evidence.waits.interop_threads import interop_advice
from pytracer.analyze.evidence.waits.network_waits import CHILD_PRINTS, answer_advice, network_advice
from pytracer.analyze.evidence.waits.pool_joins import hands_over
from pytracer.analyze.evidence.waits.queue_fillers import filler_of
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait, WaitKind
from pytracer.analyze.evidence.waits.waited_object import waited_object
from pytracer.analyze.evidence.waits.waits import at_program_end, called_by_program, gil_of, main_stack
from pytracer.analyze.evidence.waits.working_threads import may_work
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

_RESULTS = ("Future.result", "result_iterator")
_FUTURE = (
    "Its task had not ended, or had not begun: look at where the pool's threads or processes were, which may be slow, "
    "wait themselves, or have been killed. result(timeout=...) raises instead of waiting for ever."
)
_HANDED = (
    "Look at the process that has the pool: its thread that takes results (`Pool._handle_results`) has ended, as by "
    "an error that it could not load, or waits itself, such as in a callback."
)
_MAY_WORK = (
    "If that thread was only at work, such as to save or send what is left, nothing stands still: raise the time "
    "limit, or make it quicker. Else:"
)
_WITH = "`with lock:` releases it on every way."
_WRITES_INPUT = ("write", "writelines", "flush", "fileno")
_READERS = ("run", "check_output", "getoutput", "getstatusoutput")  # these read what is printed
_COMMAND = 60
_OUTPUTS = ("stdout", "stderr")
LET_THREAD_END = (
    "Let that thread end: give it a sentinel or an Event by which the program stops it, and join() it; or start it "
    "with daemon=True if it may be cut off. ThreadPoolExecutor: shutdown(cancel_futures=True)."
)
ADVICE: dict[WaitKind, str] = {
    "forked-openmp": "The OpenMP threads of the parent do not exist in a forked child. Start it by spawn or forkserver "
    "(multiprocessing.get_context), or call torch.set_num_threads(1) before the parent's first parallel operator.",
    "forked-lock": "A lock that another thread of the parent held at fork() stays locked in the child for ever. Start "
    "children by spawn or forkserver (DataLoader: multiprocessing_context), or start that thread after them.",
    "forked-notice": "fork() copies one thread only: a ThreadPoolExecutor or a thread that the parent had started does "
    "not run in the child, whose tasks wait for ever. Make it in the child (lazily, or in worker_init_fn), or start "
    "children by spawn (DataLoader: multiprocessing_context).",
    "forked-tasks": "torch.jit.fork() hands its tasks to threads that a forked child does not have: start it by spawn.",
    "forked-native": "fork() copies one thread: threads that a native library had started in the parent do not run in "
    "the child. Use the library first in the child, or start it by spawn.",
    "executor": "Let the function that the thread runs return when the program ends.",
    "lock": "Find the thread that holds this lock: locks that are taken in different orders, or a thread that died "
    "with it. `pytracer attach` shows all threads while the program stands.",
    "lock-file": "Look for the process that holds the lock. If none is left - a build or download that was killed "
    "leaves its file behind - delete the file: `lock` in the build folder of a torch extension (TORCH_EXTENSIONS_DIR, "
    "~/.cache/torch_extensions by default), or the `*.lock` beside what that line loads.",
    "child": "Look at the child: what it waits for, or whether it ever got its input. "
    "`pytracer attach` shows it while it runs.",
    "unread-queue": "get() from the queue before join(): a child does not end before all that it put into a "
    "multiprocessing queue is read.",
    "thread-at-exit": LET_THREAD_END,
    "thread": "Look at what that thread waits for: `pytracer attach` shows all threads while the program stands.",
    "workers": "Look at where the workers of the pool were: one that stands still, or whose task was lost when it was "
    "killed, keeps the pool from its end. `pytracer attach` shows them while the program stands; get(timeout=...) or "
    "result(timeout=...) of each result before that line raises instead of waiting for ever.",
    "full-queue": "Look at the thread or process that takes from the queue: it ended, such as by an exception, or "
    "stands still itself. put(timeout=...) raises instead of waiting for ever.",
    "message": "Look at who should have sent it: that process or thread waits itself, works on, or has ended while its "
    "end of the connection is still open here. `poll(timeout)` before recv() does not wait for ever.",
    "full-pipe": "A pipe holds 64 KiB: send() of more waits until the other end calls recv(). Let it read before it "
    "joins this process or sends itself, or send from a thread.",
    "full-output": "Read its standard output all along, or give it a file or subprocess.DEVNULL.",
    "pool": "A pool never gets the result of a worker that was killed, and not the tensor of one that ended before it "
    "was received (maxtasksperchild): return numpy arrays, or use concurrent.futures.ProcessPoolExecutor, which "
    "raises; get(timeout=...) ends the wait.",
    "notice": "Look at who should have called notify(), set() or finished the task: a worker that died, or a pool "
    "whose process was killed, never does. Pass a timeout to wait(), get() or result().",
    "flock": "Look for the process that has the lock (`lslocks`): one that waits for this rank itself, such as in a "
    "collective, never releases it. Communicate outside of the locked part.",
    "debugger": "Take the breakpoint out: below torchrun a rank has no terminal of its own, and the others wait for "
    "it. torch.distributed.breakpoint() stops one rank and keeps the others at a barrier; or debug with one process.",
    "input": "A rank has no terminal to read from below a launcher: pass what it asks for as an option or a file.",
    "open": "open() waits where the path is a named pipe (FIFO) that nobody writes to or reads from, or on a network "
    "file system that does not answer: `ls -l` the path. Start the other end of the pipe first, on every rank.",
    "barrier": "A Barrier opens when as many have called wait() as it was made for: count who never does, or left its "
    "loop earlier. wait(timeout=...) raises BrokenBarrierError instead of waiting for ever.",
    "nodes": "It starts its ranks when all nodes are there: run the same command on each node, with the same "
    "rendezvous endpoint (--rdzv-endpoint, or --master-addr and --master-port) and another --node-rank, and see that "
    "they reach that host and port. For this node alone: --nnodes=1, or --standalone.",
    "undone": "Whoever takes an item out of that queue must call task_done() once for it, after an error, too (in a "
    "`finally`); and somebody must take them all.",
    "event-loop": "See which `await` each task is in: asyncio.all_tasks() and task.print_stack(), called by a signal "
    "handler or another thread. It may be an answer of a server, an Event that nobody sets, or an item that nobody "
    "puts any more, as a task that failed is silent until it is awaited: await the tasks, too (asyncio.TaskGroup, "
    "gather). asyncio.wait_for() limits a wait.",
    "network": "The socket has no time limit: settimeout(), or `timeout=` of the call, makes such a wait an error.",
    "accept": "Start the other side, and see that it uses this host and port.",
    "answer": CHILD_PRINTS,
    "device": "Look at the work that was put on the device before: a kernel that does not end, or is slow.",
    "driver": "Look at the work that was put on the device before: such a call waits until the device has done it.",
    "gil": "Release the GIL while native code waits for threads that call Python (py::gil_scoped_release).",
    "queue": "Look at who should have filled the queue; get(timeout=...) raises instead of waiting for ever.",
}


LEFT = "What was left in the queue is lost; cancel_join_thread() would end the wait, and hide that."
AT_END = (
    "At its end a program waits until all that it put into a multiprocessing queue is in the pipe, which holds 64 KiB: "
    f"whoever reads the queue has to take all of it before it ends, until a mark (None) that is put last. {LEFT}"
)


def wait_advice(view: ProcessView, wait: ProcessWait) -> str:
    """Of its kind; of a queue that nobody fills any more, and of a child that was started with a pipe, about that."""
    filler = ended_filler(view, wait) or filler_of(view, wait)
    if filler is not None:
        return filler.advice
    if wait.kind == "notice" and (called_by_program(view) or "").endswith(_RESULTS):
        return _FUTURE
    if wait.kind == "unread-queue" and at_program_end(main_stack(view)):
        return AT_END
    if wait.kind == "executor":
        return executor_advice(view)
    if wait.kind == "thread-at-exit" and may_work(view):
        return f"{_MAY_WORK} {uncapital(LET_THREAD_END)}"
    if wait.kind == "gil" and (held := gil_of(view)) is not None:
        return held.advice
    if wait.kind == "full-queue" and hands_over(main_stack(view)):
        return _HANDED
    if wait.kind in ("network", "accept"):
        return network_advice(view, wait, called_by_program(view))
    if wait.kind == "answer":
        return answer_advice(view, wait)
    if wait.kind == "forked-tasks":
        return interop_advice(view, wait.at)
    if wait.kind == "forked-native":
        return pool_advice(view) or ADVICE[wait.kind]
    if wait.kind == "forked-lock":
        lock = forked_lock(view, wait, None)
        return lock.advice if lock is not None else ADVICE[wait.kind]
    thing = waited_object(view, wait) if not wait.kind.startswith("forked") else None
    if thing is not None and thing.advice is not None:
        return thing.advice + (_WITH if wait.kind == "lock" else thing.limit)
    if thing is not None and thing.made is not None and wait.kind == "barrier":
        return f"Line {thing.made[0]} makes it (`{thing.made[1]}`). {ADVICE[wait.kind]}"
    return _unread_pipe(view, wait) or _own_input(view, wait) or ADVICE[wait.kind]


def read_later(view: ProcessView, wait: ProcessWait) -> str:
    """That the function which waits for a child reads a queue further below."""
    tree = syntax_tree(view.process.snapshot, wait.at)
    if tree is None or wait.at is None or wait.at.line is None:
        return ""
    line = wait.at.line
    gets = [
        item
        for item in own_nodes(scope_of(tree, line))
        if isinstance(item, ast.Call) and called_name(item) == "get" and isinstance(item.func, ast.Attribute)
        if item.lineno > line and not item.args
    ]
    if not gets:
        return ""
    first = min(gets, key=lambda item: item.lineno)
    return f"Line {first.lineno} (`{shortened(ast.unparse(first), _COMMAND)}`) comes after the join() of line {line}: "


def _unread_pipe(view: ProcessView, wait: ProcessWait) -> str | None:
    for item in _starts(view, wait):
        if called_name(item) in _READERS:
            continue
        pipes = [word.arg for word in item.keywords if word.arg in _OUTPUTS and _is_pipe(word.value)]
        if any(word.arg == "stdin" and _is_pipe(word.value) for word in item.keywords) and not _closes_input(
            view, wait
        ):
            more = f"; its {' and '.join(map(str, pipes))} is one, too, which is full at 64 KiB" if pipes else ""
            return (
                f"Line {item.lineno} makes the child's stdin a pipe, and no line closes it: a child that reads its "
                f"input to the end waits for more{more}. Call communicate(input=...) instead of wait(), which closes "
                "the one and reads the others, or stdin.close() before the wait. Else look at what it does meanwhile."
            )
        if pipes:
            return (
                f"Line {item.lineno} makes the child's {' and '.join(str(name) for name in pipes)} a pipe: when it is "
                "full (64 KiB), the child waits until somebody reads. Call communicate() instead of wait(), or give it "
                "DEVNULL or a file. If it writes less than that, look at what else it waits for."
            )
    return None


def _closes_input(view: ProcessView, wait: ProcessWait) -> bool:
    """`process.stdin.close()`, anywhere in the file; or what else does more with it than to write: `with`, a name."""
    tree = syntax_tree(view.process.snapshot, wait.at)
    nodes = [*nodes_of(tree)] if tree is not None else []
    used = [item for item in nodes if isinstance(item, ast.Attribute) and item.attr == "stdin"]
    written = {id(item.value) for item in nodes if isinstance(item, ast.Attribute) and item.attr in _WRITES_INPUT}
    return tree is None or any(id(item) not in written for item in used if ast.unparse(item.value) != "sys")


def _own_input(view: ProcessView, wait: ProcessWait) -> str | None:
    """A program that is started without an input of its own has that of the rank."""
    for item in _starts(view, wait):
        command = ast.unparse(item.args[0]) if item.args else None
        given = any(word.arg in ("stdin", "input") or word.arg is None for word in item.keywords)
        if command is None or given or "sys.executable" in command or called_name(item) not in (*_READERS, "Popen"):
            continue
        shown = shortened(command, _COMMAND)
        return (
            f"Line {item.lineno} runs `{shown}`, which had not ended: run it by hand, with what it is given there, to "
            "see how long it takes and what it waits for. Pass a timeout, and stdin=subprocess.DEVNULL: without that "
            "it has the standard input of this process, and waits if it reads from there (no file was named, a "
            "password is asked for)."
        )
    return None


def _starts(view: ProcessView, wait: ProcessWait) -> Iterator[ast.Call]:
    """The calls by which the function that waits for a child starts one by subprocess, up to that line."""
    tree = syntax_tree(view.process.snapshot, wait.at) if wait.kind == "child" else None
    if tree is None or wait.at is None or wait.at.line is None:
        return
    for item in own_nodes(scope_of(tree, wait.at.line)):
        is_start = isinstance(item, ast.Call) and called_name(item) in (*_READERS, "Popen", "call", "check_call")
        if isinstance(item, ast.Call) and is_start and item.lineno <= wait.at.line:
            yield item


def _is_pipe(value: ast.expr) -> bool:
    return ast.unparse(value) in ("PIPE", "subprocess.PIPE", "sp.PIPE")
