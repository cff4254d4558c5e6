"""torch.distributed.rpc: how many threads the pool of a worker has, and whether all workers of a job are recorded."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.waits.waits import end_of
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.parts import python_frame
from pytracer.analyze.view import JobView, ProcessView

RPC_FILES = Pattern(r"/torch/distributed/rpc/\w+\.py$")
POOL_SIZE = "num_worker_threads"
_OPTIONS, _DEFAULT = "TensorPipeRpcBackendOptions", 16  # torch 2.9 to 2.15


class PoolSize(msgspec.Struct, frozen=True):
    """How many threads the pool of a worker has; `line`: of the setting, None of torch's default."""

    count: int
    line: int | None = None
    file: str | None = None

    def words(self, here: str | None) -> str:
        """`num_worker_threads=2, line 106`."""
        at: str | LineWords = line_in(self.file, self.line, here) if self.line is not None else "torch's default"
        return f"{POOL_SIZE}={self.count}, {at}"


def pool_size(view: ProcessView) -> PoolSize | None:
    """By the only setting of the program; None where that is no number that is known."""
    files = _files(view)
    if not files:
        return None
    settings = [*_settings(files)]
    if not settings:
        return PoolSize(_DEFAULT)
    known = {_number(view, value) for _, value, _ in settings}
    count = known.pop() if len(known) == 1 else None
    file, _, line = settings[0]
    return PoolSize(count, line, file) if count is not None else None


def is_complete(job: JobView, view: ProcessView) -> bool:
    """Whether as many workers were asked to end, with their stacks, as init_rpc() was told that there are.

    Not where a call of it has no number that is known.
    """
    files = _files(view)
    calls = [item for tree in files.values() for item in nodes_of(tree) if isinstance(item, ast.Call)]
    told = [keyword_value(item, "world_size") for item in calls if called_name(item) == "init_rpc"]
    sizes = {_number(view, item) if item is not None else None for item in told}
    workers = sum(_is_worker(item) for item in job.views)
    return bool(sizes) and all(size is not None and size <= workers for size in sizes)


def _is_worker(view: ProcessView) -> bool:
    """Whether a line of torch.distributed.rpc is on one of its stacks."""
    end = end_of(view)
    return end is not None and any(RPC_FILES.search(item.file) for _, frames in end.python_threads for item in frames)


def _files(view: ProcessView) -> dict[str, ast.Module]:
    """Of the program, by all threads: the file that starts the worker may be the main thread's alone."""
    end = end_of(view)
    stacks = [frames for _, frames in end.python_threads] if end is not None else []
    others = [python_frame(item) for frames in stacks for item in frames if not is_library_file(item.file)]
    return program_files(view.process.snapshot, [*program_frames(view), *others])


def _settings(files: Mapping[str, ast.Module]) -> Iterator[tuple[str, ast.expr, int]]:
    for file, tree in files.items():
        for item in nodes_of(tree):
            if isinstance(item, ast.Call) and called_name(item) == _OPTIONS:
                value = keyword_value(item, POOL_SIZE)
                if value is not None:
                    yield file, value, value.lineno
            elif isinstance(item, ast.Assign) and any(_is_size(target) for target in item.targets):
                yield file, item.value, item.lineno


def _is_size(target: ast.expr) -> bool:
    """`options.num_worker_threads`."""
    return isinstance(target, ast.Attribute) and target.attr == POOL_SIZE


def _number(view: ProcessView, value: ast.expr) -> int | None:
    """Of a number in the source, or of a variable that all recorded frames have alike."""
    if isinstance(value, ast.Constant):
        return value.value if isinstance(value.value, int) else None
    end, text = end_of(view), ast.unparse(value)
    known = {item.text for item in (end.values if end is not None else ()) if item.expression == text}
    only = known.pop() if len(known) == 1 else ""
    return int(only) if only.isdecimal() else None
