"""What a dataset of the program keeps of each sample: every worker of a DataLoader is a process, and keeps its own.

`self.imgs[index] = img` in `__getitem__` or in a method that it calls: after some epochs each worker has all of the
data, also where the dataset was one in the process that made it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import msgspec

from pytracer._text import count_words, shortened
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_named, parameters
from pytracer.analyze.kin import parent_of
from pytracer.analyze.naming import line_in, short_file
from pytracer.analyze.view import JobView, ProcessView

_GETTERS = ("__getitem__", "__getitems__", "__iter__")
_FILLS = frozenset({"append", "setdefault"})
_EMPTIES = frozenset({"clear", "pop", "popleft", "popitem", "remove"})
_MEMORY = re.compile(r"memory|\b(?:rss|pss|uss|vms)\b|meminfo|statm", re.IGNORECASE)
_LIMITED = ("maxlen", "memmap", "lru", "LRU", "share_memory", "Manager", "shared_memory")
_QUOTED = 50
_Method = ast.FunctionDef | ast.AsyncFunctionDef


class WorkerCache(msgspec.Struct, frozen=True):
    """`line` of `file` puts a value of each sample into `name`; `workers`: of the DataLoader, as far as it is known."""

    name: str
    file: str
    line: int
    text: str
    dataset: str
    workers: int | None

    @property
    def words(self) -> str:
        """`each worker keeps what it loads in a `self.imgs` of its own (data.py:68)`."""
        return f"each worker keeps what it loads in a `{self.name}` of its own ({short_file(self.file)}:{self.line})"

    def advice(self, here: str | None) -> str:
        """What to change. `here`: the file that is spoken of."""
        many = count_words(self.workers, "worker") if self.workers is not None else "the workers"
        return (
            f"At {line_in(self.file, self.line, here)} (`{self.text}`) {self.dataset} keeps what it loads, in each of "
            f"{many} for itself: where samples are shuffled, each has all of them in the end. Fill `{self.name}` "
            "before the DataLoader is made, as one array or tensor (forked workers share that), bound it, keep it on "
            "disk (np.load(mmap_mode='r')), or use fewer workers."
        )


def is_about_memory(condition: str) -> bool:
    """Whether the condition below which a process was killed asks for memory: `job.memory_info().rss > limit`."""
    return _MEMORY.search(condition) is not None


def worker_cache(job: JobView, view: ProcessView) -> WorkerCache | None:
    """Of a DataLoader's worker whose dataset is a class of the program; None where it keeps nothing, or bounds that."""
    worker, parent = view.process.snapshot.worker, parent_of(job, view)
    if worker is None or worker.dataset is None or parent is None:
        return None
    files = program_files(parent.process.snapshot, parent.exception_stack_of_program or parent.python_stack or ())
    found = [(file, item) for file, tree in files.items() if (item := class_named(tree, worker.dataset)) is not None]
    if len(found) != 1:
        return None
    file, owner = found[0]
    stores = [item for method in _run_methods(owner) for item in _stores(owner, method)]
    names = {name for name, _ in stores}
    if len(names) != 1:
        return None
    name, node = stores[0]
    return WorkerCache(
        name, file, node.lineno, shortened(ast.unparse(node), _QUOTED), worker.dataset, worker.num_workers
    )


def _run_methods(owner: ast.ClassDef) -> Iterator[_Method]:
    """What gives a sample, and the methods that are called for it."""
    methods = {item.name: item for item in owner.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))}
    waiting = [name for name in _GETTERS if name in methods]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        yield methods[name]
        calls = (item for item in nodes_of(methods[name]) if isinstance(item, ast.Call))
        called = (variable(item.func) or "" for item in calls)
        waiting += [text.removeprefix("self.") for text in called if text.removeprefix("self.") in methods]


def _stores(owner: ast.ClassDef, method: _Method) -> Iterator[tuple[str, ast.stmt]]:
    """The attributes that it fills with what it made, and that nothing in the class empties or counts."""
    for node in nodes_of(method):
        container, value = None, None
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Subscript):
            container, value = node.targets[0].value, node.value
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and called_name(node.value) in _FILLS:
            func, args = node.value.func, node.value.args
            container, value = (func.value, args[-1]) if isinstance(func, ast.Attribute) and args else (None, None)
        name = variable(container) if container is not None else None
        if name is None or value is None or not name.startswith("self.") or not isinstance(node, ast.stmt):
            continue
        if _is_made(method, value) and not _is_bounded(owner, name):
            yield name, node


def _is_made(method: _Method, value: ast.expr) -> bool:
    """Whether it is what a call gave, and not the number of the sample or something counted."""
    if isinstance(value, (ast.Tuple, ast.List)):
        return any(_is_made(method, item) for item in value.elts)
    if isinstance(value, ast.Call):
        return called_name(value) not in ("int", "float", "len", "item", "time", "perf_counter", "str")
    if not isinstance(value, ast.Name) or value.id in parameters(method):
        return False
    bound = [
        item.value
        for item in nodes_of(method)
        if isinstance(item, ast.Assign)
        for target in item.targets
        if any(isinstance(part, ast.Name) and part.id == value.id for part in nodes_of(target))
    ]
    return any(isinstance(item, ast.Call) and _is_made(method, item) for item in bound)


def _is_bounded(owner: ast.ClassDef, name: str) -> bool:
    """Whether the class takes something out, makes it anew beside its constructor, or asks for its length."""
    methods = (item for item in owner.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)))
    return any(_limits(method, item, name) for method in methods for item in nodes_of(method))


def _limits(method: _Method, item: ast.AST, name: str) -> bool:
    if isinstance(item, ast.Call) and called_name(item) == "len":
        return method.name != "__len__" and any(variable(part) == name for part in item.args)
    if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute):
        return item.func.attr in _EMPTIES and variable(item.func.value) == name
    if isinstance(item, ast.Delete):
        return any(name in ast.unparse(target) for target in item.targets)
    if isinstance(item, ast.Assign) and any(variable(target) == name for target in item.targets):
        return method.name != "__init__" or any(word in ast.unparse(item.value) for word in _LIMITED)
    return False
