"""What a dataset of the program keeps of each sample: every worker of a DataLoader is a process, and keeps its own.

`self.imgs[index] = img` in `__getitem__` or in a method that it calls: after some epochs each worker has all of the
data, also where the dataset was one in the process that made it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

import msgspec

from pytracer._text import count_words, shortened
from pytracer.analyze.evidence.ends.growing_containers import EMPTIES, stored
from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.constants import ORDERS
from pytracer.analyze.evidence.syntax.loops import deciding_ifs, last_of
from pytracer.analyze.evidence.syntax.names import elements, last_name, names_of, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_named, parameters
from pytracer.analyze.kin import parent_of
from pytracer.analyze.naming import line_in, short_file
from pytracer.analyze.view import JobView, ProcessView

_GETTERS = ("__getitem__", "__getitems__", "__iter__")
# Methods and functions that share what they are given, or that is made by them, with other processes.
_SHARES = frozenset({"share_memory_", "move_to_shared_memory"})
_ARRAYS = frozenset({"zeros", "empty", "ones", "full", "zeros_like", "empty_like"})
_COLLECTIONS = frozenset({"list", "dict", "set", "defaultdict", "OrderedDict", "deque"})
_SMALL = frozenset(
    {"int", "float", "bool", "len", "item", "time", "perf_counter", "monotonic", "str", "repr", "hash", "sum", "round"}
    | {"basename", "dirname", "join", "splitext", "abspath", "realpath", "relpath", "exists", "Path", "format", "strip"}
    | {"split", "lower", "upper", "replace", "hexdigest", "getsize", "stat", "getpid", "default_rng", "Generator"}
    | {"mean", "std", "var", "median", "min", "max", "argmin", "argmax", "norm", "any", "all", "count_nonzero"}
)
# What is read later, where it is asked for.
_HANDLES = frozenset(
    {"open", "File", "connect", "memmap", "open_memmap", "mmap", "ZipFile", "TarFile", "VideoCapture", "VideoReader"}
    | {"Dataset", "begin", "Env", "open_dataset", "open_zarr", "open_array", "open_group", "Lock", "ref", "Session"}
)
_CONVERTS = frozenset({"astype", "from_numpy"})  # give an array as large as the one that they have
_SAME_NUMBER = frozenset({"int", "str", "item", "tolist"})
_NARROWS = (ast.Mod, ast.FloorDiv, ast.BitAnd, ast.RShift)
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
    made = _made_in(owner, files.values())
    runs = _run_methods(files[file], owner)
    stores = [item for method, numbers in runs for item in _stores(files[file], method, numbers) if item[0] in made]
    stores = [item for item in stores if not _is_bounded(owner, item[0])]
    names = {name for name, _ in stores}
    if len(names) != 1:
        return None
    name, node = stores[0]
    return WorkerCache(
        name, file, node.lineno, shortened(ast.unparse(node), _QUOTED), worker.dataset, worker.num_workers
    )


def _run_methods(tree: ast.Module, owner: ast.ClassDef) -> Iterator[tuple[_Method, frozenset[str]]]:
    """What gives a sample, and the methods that are called for it; each with its names for the sample's number."""
    methods = {item.name: item for item in _methods_of(owner)}
    waiting = [(name, frozenset(parameters(methods[name])[1:])) for name in _GETTERS if name in methods]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, passed = waiting.pop()
        if (name, passed) in seen:
            continue
        seen.add((name, passed))
        method, numbers = methods[name], _numbers(methods[name], passed)
        yield method, numbers
        for call in (item for item in nodes_of(method) if isinstance(item, ast.Call)):
            called = methods.get((variable(call.func) or "").removeprefix("self."))
            if called is None or isinstance(call.func, ast.Name) or _is_below_limit(tree, method, call.lineno):
                continue
            given = {item: argument_of(call, called, item) for item in parameters(called)[1:]}
            own = frozenset(item for item, value in given.items() if value is not None and _is_number(value, numbers))
            waiting.append((called.name, own))


def _methods_of(owner: ast.ClassDef) -> list[_Method]:
    return [item for item in owner.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))]


def _numbers(method: _Method, passed: frozenset[str]) -> frozenset[str]:
    """Of what is passed that which stays the number of one sample, and what goes through several."""
    found = set(passed)
    for item in nodes_of(method):
        if isinstance(item, (ast.For, ast.comprehension)) and isinstance(item.target, ast.Name):
            found |= {item.target.id} if variable(item.iter) in passed else set()
    for item in nodes_of(method):
        if isinstance(item, ast.AugAssign) and isinstance(item.op, _NARROWS):
            found.discard(variable(item.target) or "")
        for name, value in _bound(item):
            of_it = isinstance(value, ast.Subscript) and _is_number(value.slice, passed)
            if name in found and not of_it and not _is_number(value, passed):
                found.discard(name)
    return frozenset(found)


def _is_number(node: ast.expr, numbers: frozenset[str]) -> bool:
    """`index`, `int(index)`, `index.item()`."""
    if isinstance(node, ast.Call) and called_name(node) in _SAME_NUMBER:
        inner = node.args[0] if node.args else node.func.value if isinstance(node.func, ast.Attribute) else None
        return inner is not None and _is_number(inner, numbers)
    return isinstance(node, ast.Name) and node.id in numbers


def _stores(tree: ast.Module, method: _Method, numbers: frozenset[str]) -> Iterator[tuple[str, ast.stmt]]:
    """The attributes that it fills with what it made, for each sample, whatever is in them."""
    for node in nodes_of(method):
        found = _stored(node, method, numbers) if isinstance(node, (ast.Assign, ast.Expr)) else None
        name = variable(found[0]) if found is not None else None
        if found is None or name is None or not name.startswith("self.") or not isinstance(node, ast.stmt):
            continue
        if _is_made(method, found[1]) and not _is_below_limit(tree, method, node.lineno, name):
            yield name, node


def _stored(node: ast.Assign | ast.Expr, method: _Method, numbers: frozenset[str]) -> tuple[ast.expr, ast.expr] | None:
    """Container and value of `cache[index] = x`, `cache.setdefault(index, x)`, `images.append(x)` of a result."""
    call = node.value if isinstance(node.value, ast.Call) else None
    if isinstance(node, ast.Expr) and call is not None and called_name(call) == "setdefault" and len(call.args) == 2:
        held = isinstance(call.func, ast.Attribute) and _is_number(call.args[0], numbers)
        return (call.func.value, call.args[1]) if held and isinstance(call.func, ast.Attribute) else None
    found = stored(node)
    if found is None:
        return None
    if isinstance(node, ast.Assign):
        target = node.targets[0]
        return found if isinstance(target, ast.Subscript) and _is_number(target.slice, numbers) else None
    is_append = call is not None and called_name(call) in ("append", "extend")
    return found if is_append and _is_given(method, found[1]) else None


def _is_given(method: _Method, value: ast.expr) -> bool:
    """Whether it is part of what the method returns."""
    return any(isinstance(item, ast.Name) and item.id in _given_names(method) for item in nodes_of(value))


def _is_made(method: _Method, value: ast.expr, seen: frozenset[str] = frozenset()) -> bool:
    """Whether it is what a call gave, and not the number of the sample, its path, something counted or an open file.

    Or what was computed from that: `image.astype("float32") / 255`.
    """
    if isinstance(value, (ast.Tuple, ast.List)):
        return any(_is_made(method, item, seen) for item in value.elts)
    if isinstance(value, ast.BinOp):
        return _is_computed(method, value, seen)
    if isinstance(value, ast.Call):
        mapped = any(item.arg == "mmap_mode" for item in value.keywords)
        return called_name(value) not in _SMALL | _HANDLES and not mapped
    if not isinstance(value, ast.Name) or value.id in parameters(method) or value.id in seen:
        return False
    bound = [
        item.value
        for item in nodes_of(method)
        if isinstance(item, ast.Assign)
        for target in item.targets
        if any(isinstance(part, ast.Name) and part.id == value.id for part in nodes_of(target))
    ]
    again = [item for item in bound if isinstance(item, ast.BinOp) and value.id not in names_of(item)]
    calls = [*(item for item in bound if isinstance(item, ast.Call)), *again]
    return bool(calls) and all(_is_made(method, item, seen | {value.id}) for item in calls)


def _is_computed(method: _Method, value: ast.BinOp, seen: frozenset[str]) -> bool:
    """`(image / 255 - 0.5) / 0.2` of what was loaded and is returned, also `image.astype("float32") / 255`.

    One number of a sample is none of that: `np.percentile(image, 99) / 255`; and a path is no number: `root / name`.
    """
    sides = _sides(value)
    if any(map(_is_text, sides)):
        return False
    is_quotient = any(isinstance(item, ast.BinOp) and isinstance(item.op, ast.Div) for item in nodes_of(value))
    for side in sides:
        name = _converted(side)
        if name is not None and _is_made(method, name, seen):
            if _is_given(method, name) or _returns_kept(method):
                return True
        elif isinstance(side, ast.Name) and _is_made(method, side, seen):
            by_number = all(item is side or isinstance(item, ast.Constant) for item in sides)
            is_given = _is_given(method, side) or bool(seen & _given_names(method))
            if is_given and (by_number or not is_quotient):
                return True
    return False


def _sides(value: ast.expr) -> list[ast.expr]:
    """What is computed with: of `(a - b) / c` three."""
    return [*_sides(value.left), *_sides(value.right)] if isinstance(value, ast.BinOp) else [value]


def _converted(side: ast.expr) -> ast.Name | None:
    """`image`, of `image.astype("float32")` and `torch.from_numpy(image)`."""
    if not isinstance(side, ast.Call) or called_name(side) not in _CONVERTS or not isinstance(side.func, ast.Attribute):
        return None
    held = side.func.value if side.func.attr == "astype" else next(iter(side.args), None)
    return held if isinstance(held, ast.Name) else None


def _returns_kept(method: _Method) -> bool:
    """Whether it returns an item of an attribute that it fills: `image = self.images[i]`, `return image`."""
    items = [item for item in nodes_of(method) if isinstance(item, ast.Subscript)]
    filled = {variable(item.value) for item in items if isinstance(item.ctx, ast.Store)} - {None}
    given = _given_names(method)
    returned = [item.value for item in nodes_of(method) if isinstance(item, (ast.Return, ast.Yield)) and item.value]
    returned += [value for item in nodes_of(method) for name, value in _bound(item) if name in given]
    return any(isinstance(item, ast.Subscript) and variable(item.value) in filled for item in returned)


def _given_names(method: _Method) -> frozenset[str]:
    """The variables that are part of what the method returns."""
    given = [item.value for item in nodes_of(method) if isinstance(item, (ast.Return, ast.Yield)) and item.value]
    return frozenset(part.id for item in given for part in nodes_of(item) if isinstance(part, ast.Name))


def _is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.JoinedStr) or (isinstance(value, ast.Constant) and isinstance(value.value, str))


def _is_below_limit(tree: ast.Module, method: _Method, line: int, name: str | None = None) -> bool:
    """Whether a line is reached only as long as something is small enough, or where a method decides that.

    `name`: what the line fills; whether that has the sample already is no limit.
    """
    found = deciding_ifs(tree, line)
    tests = [item.test for item, around in found if around or not isinstance(last_of(item.body), ast.Raise)]
    tests += [item.test for item in nodes_of(method) if isinstance(item, (ast.If, ast.IfExp)) and item.lineno == line]
    named = {held for test in tests for part in nodes_of(test) if (held := variable(part)) is not None}
    meant = [value for item in nodes_of(method) for held, value in _bound(item) if held in named]
    calls = [part.func for test in tests for part in nodes_of(test) if isinstance(part, ast.Call)]
    return any((variable(item) or "").startswith("self.") for item in calls) or any(
        _asks_limit(part, name) for item in (*tests, *meant) for part in nodes_of(item)
    )


def _asks_limit(node: ast.AST, name: str | None) -> bool:
    """`used < self.budget`, `index in self.hot`, `len(self.cache)`; not `self.cache is None`, `self.mode == "ram"`."""
    if isinstance(node, ast.Call):
        return called_name(node) == "len"
    if not isinstance(node, ast.Compare):
        return False
    sides = [node.left, *node.comparators]
    attributes = {held for item in sides if (held := variable(item)) is not None and held.startswith("self.")} - {name}
    text = any(isinstance(item, ast.Constant) and isinstance(item.value, str) for item in sides)
    same = bool(attributes) and not text
    return any(isinstance(op, ORDERS) or (same and isinstance(op, (ast.Eq, ast.NotEq, ast.In))) for op in node.ops)


def _bound(item: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The variables and attributes that a statement binds, each with its value: of `a, b = 1, 2` its own."""
    if not isinstance(item, (ast.Assign, ast.AnnAssign)) or item.value is None:
        return
    for target in item.targets if isinstance(item, ast.Assign) else [item.target]:
        parts = elements(target)
        own = item.value.elts if isinstance(item.value, ast.Tuple) and len(item.value.elts) == len(parts) else None
        for place, part in enumerate(parts):
            name = variable(part)
            if name is not None:
                yield name, own[place] if own is not None and parts != [target] else item.value


def _made_in(owner: ast.ClassDef, trees: Iterable[ast.Module]) -> frozenset[str]:
    """The attributes in which the constructor puts a collection or an array of its own, and that nothing shares."""
    shared = {
        last_name(item.func.value)
        for tree in trees
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr in _SHARES
    }
    values: dict[str, list[ast.expr]] = {}
    local: dict[str, list[ast.expr]] = {}
    for method in _methods_of(owner):
        if method.name == "__init__":
            for name, value in (pair for item in nodes_of(method) for pair in _bound(item)):
                (values if name.startswith("self.") else local).setdefault(name, []).append(value)
    for name, value in (pair for item in owner.body for pair in _bound(item)):
        values.setdefault(f"self.{name}", []).append(value)
    return frozenset(
        name
        for name, made in values.items()
        if not {name.removeprefix("self."), *(last_name(item) for item in made)} & (shared - {None})
        and all(_is_own(item, local) for item in made)
        and not all(isinstance(item, ast.Constant) for item in made)
    )


def _is_own(value: ast.expr, local: dict[str, list[ast.expr]]) -> bool:
    """`{}`, `[None] * n`, `{} if keep else None`, `np.zeros(n)`; `local`: the variables of the constructor."""
    if isinstance(value, ast.Name):
        made = local.get(value.id, [])
        return bool(made) and all(_is_own(item, {}) for item in made)
    if isinstance(value, ast.IfExp):
        return _is_own(value.body, local) and _is_own(value.orelse, local)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        filled = [item for item in (value.left, value.right) if isinstance(item, ast.List)]
        return bool(filled) and not any(map(_is_of_numbers, filled))
    if isinstance(value, ast.Call):
        limited = any(item.arg in ("maxlen", "out") for item in value.keywords) or (
            called_name(value) == "deque" and len(value.args) > 1
        )
        name = called_name(value)
        return not limited and (name in _COLLECTIONS or (name in _ARRAYS and _has_rows(value)))
    literals = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp)
    return isinstance(value, literals) or (isinstance(value, ast.Constant) and value.value is None)


def _is_of_numbers(value: ast.List) -> bool:
    """`[0.0]`, of which `[0.0] * n` has one number for each sample."""
    return any(isinstance(item, ast.Constant) and isinstance(item.value, (int, float)) for item in value.elts)


def _has_rows(call: ast.Call) -> bool:
    """Whether an array is known to have more than one dimension, or objects: `np.zeros(n)` has a number for each."""
    if any(item.arg == "dtype" and ast.unparse(item.value) in ("object", "np.object_") for item in call.keywords):
        return True
    shape = next((item.value for item in call.keywords if item.arg in ("shape", "size")), None)
    shape = call.args[0] if shape is None and call.args else shape
    if isinstance(shape, (ast.Tuple, ast.List)):
        return len(shape.elts) > 1
    of_torch = isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "torch"
    return of_torch and called_name(call) != "full" and len(call.args) > 1


def _is_bounded(owner: ast.ClassDef, name: str) -> bool:
    """Whether the class takes something out, makes it anew beside its constructor, or asks for its length."""
    return any(_limits(method, item, name) for method in _methods_of(owner) for item in nodes_of(method))


def _limits(method: _Method, item: ast.AST, name: str) -> bool:
    if isinstance(item, ast.Call) and called_name(item) == "len":
        return method.name != "__len__" and any(variable(part) == name for part in item.args)
    if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute):
        return item.func.attr in EMPTIES and variable(item.func.value) == name
    if isinstance(item, ast.Delete):
        return any(name in ast.unparse(target) for target in item.targets)
    return method.name != "__init__" and any(bound == name for bound, _ in _bound(item))
