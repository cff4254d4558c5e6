"""Values that grow by themselves: an array that is joined to itself, a state that has the graphs of all rounds."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping

from pytracer._text import capital, shortened
from pytracer.analyze.evidence.ends.keeping_lines import KeepingLine
from pytracer.analyze.evidence.ends.kept_parts import targets_of
from pytracer.analyze.evidence.ends.object_names import Objects
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.loops import COMPREHENSIONS, LOOPS, loops_around
from pytracer.analyze.evidence.syntax.names import elements, last_name, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, scope_of, spans, statement_at
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_JOINS = frozenset(
    {"cat", "concat", "concatenate", "append", "vstack", "hstack", "dstack", "row_stack", "column_stack"}
)
_LIBRARIES = ("torch.", "numpy.", "pandas.")
_TAKES_GRADIENTS = frozenset({"backward", "grad", "manual_backward", "no_grad", "inference_mode", "set_grad_enabled"})
_FROZEN = frozenset({"requires_grad", "requires_grad_"})
_CUTS = frozenset({"detach", "detach_", "item", "numpy", "tolist", "repackage_hidden"})
_FORWARD = ("forward", "__call__")
_WEIGHTS = re.compile(r"(Lazy)?((Bil|L)inear|Conv|Embedding|MultiheadAttention|Transformer|LSTM|GRU|RNN|Parameter$)")
_OF_LAYERS = ("torch.nn.", "torch.nn.parameter.")
_LEADS_ELSEWHERE = ("lightning", "pytorch_lightning", "fastai", "ignite")  # these call backward() themselves
_PER_BATCH = ("forward", "training_step", "validation_step", "test_step", "predict_step")
_BINDS = (ast.Assign, ast.AnnAssign)
_QUOTED = 60


def joined_to_itself(at: FailingLine) -> KeepingLine | None:
    """`preds = torch.cat([preds, out])`, which failed; `parts = np.concatenate(parts)`."""
    statement = at.statement
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target, call = ast.unparse(statement.targets[0]), statement.value
    if not isinstance(call, ast.Call) or called_name(call) not in _JOINS or not call.args:
        return None
    if not (imported_as(at.tree, call.func) or "").startswith(_LIBRARIES):
        return None
    text, size = shortened(ast.unparse(statement), _QUOTED), at.value(target)
    so_far = f" ({size})" if size is not None else ""
    if ast.unparse(call.args[0]) == target and len(call.args) == 1:
        return KeepingLine(
            f"line {at.line} needs the parts in `{target}`{so_far} and the whole of them at once",
            f"Line {at.line} (`{text}`) holds all parts while it makes the whole, so it needs all of them twice: make "
            "the whole once (np.empty() or torch.empty() of the final shape) and fill it part by part, or read from "
            "the parts (an index of parts, np.memmap).",
        )
    parts = [*elements(call.args[0]), *(call.args[1:] if not isinstance(call.args[0], (ast.Tuple, ast.List)) else ())]
    if target not in map(ast.unparse, parts) or not _is_of_rounds(at.tree, statement):
        return None
    return KeepingLine(
        f"line {at.line} makes `{target}`{so_far} longer each time, and has the old and the new one at once",
        f"Line {at.line} (`{text}`) copies all of `{target}` each time: it grows for as long as the rounds go on, and "
        "each time it needs all of it twice. Keep what is read later only (a count, a sum, an argmax), or append each "
        "part to a list and join them once.",
    )


def loaded_file(snapshot: Snapshot, frame: PythonFrame) -> KeepingLine | None:
    """`state = torch.load(path)`, which makes many tensors in one call: no round keeps them."""
    tree = program_files(snapshot, [frame]).get(frame.file or "")
    statement = statement_at(tree, frame.line) if tree is not None and frame.line is not None else None
    if tree is None or not isinstance(statement, (ast.Assign, ast.Expr, ast.Return)):
        return None
    if loops_around(tree, statement.lineno) or any(isinstance(item, COMPREHENSIONS) for item in nodes_of(statement)):
        return None
    loads = [
        item
        for item in nodes_of(statement)
        if isinstance(item, ast.Call) and imported_as(tree, item.func) == "torch.load"
        if keyword_value(item, "mmap") is None
    ]
    if len(loads) != 1 or _runs_often(program_files(snapshot, [frame]), scope_of(tree, statement.lineno)):
        return None
    return KeepingLine(
        f"torch.load() at line {statement.lineno} reads all of a file into memory",
        f"torch.load() at line {statement.lineno} reads all of the file, in each process that calls it, beside what "
        "the process has already: load a file that has only what is used (of a checkpoint the weights without the "
        "states of the optimizer), and drop the result (`del`) before the next large step. mmap=True keeps what is not "
        "used out of RAM, but not out of a limit of the address space.",
    )


def made_layers(snapshot: Snapshot, frame: PythonFrame) -> KeepingLine | None:
    """`nn.Linear(width, width)`: weights, which the model has for as long as it lives."""
    tree = program_files(snapshot, [frame]).get(frame.file or "")
    statement = statement_at(tree, frame.line) if tree is not None and frame.line is not None else None
    if tree is None or statement is None:
        return None
    calls = [item for item in nodes_of(statement) if isinstance(item, ast.Call) and spans(item, frame.line or 0)]
    at_once = {id(item.func) for item in calls}  # `nn.Linear(3, 4)(model(x))`
    if not any(_is_layer(tree, item) and id(item) not in at_once for item in calls):
        return None
    return KeepingLine(
        f"these are the weights of the layers that line {frame.line} makes",
        "One model takes that much, or several that are held at once (of folds, or of earlier rounds: drop these). "
        f"Make the layers of line {frame.line} fewer or smaller, or of a smaller type (dtype=torch.bfloat16). Training "
        "takes as much again for the gradients, and twice as much again for the states of Adam.",
    )


def _is_layer(tree: ast.Module, call: ast.Call) -> bool:
    """Of torch.nn, by the name of a class that has weights; no loss or activation."""
    name = imported_as(tree, call.func) or ""
    return name.startswith(_OF_LAYERS) and _WEIGHTS.match(name.rpartition(".")[2]) is not None


def carried_state(snapshot: Snapshot, frame: PythonFrame) -> KeepingLine | None:
    """`h = cell(x, h)` in rounds for which nobody calls backward(): each has the graph of the one before."""
    files = program_files(snapshot, [frame])
    tree = files.get(frame.file or "")
    if tree is None or frame.line is None or not _takes_no_gradients(files.values()):
        return None
    scope, statement = scope_of(tree, frame.line), statement_at(tree, frame.line)
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, (ast.Call, ast.BinOp)):
        return None
    read = {variable(item) for item in nodes_of(statement.value)}
    called = {called_name(item) for item in nodes_of(statement.value) if isinstance(item, ast.Call)}
    state = next(
        (name for item in statement.targets for part in elements(item) if (name := variable(part)) in read), None
    )
    if state is None or called & _CUTS or not _goes_on(tree, scope, statement, state):
        return None
    if not state.startswith("self.") and _runs_often(files, scope):
        return None  # each call begins anew: the graph of one batch
    weights = _with_weights(files)
    if not any(last_name(item) in weights for item in nodes_of(statement.value)):
        return None
    text, where = shortened(ast.unparse(statement), _QUOTED), f"line {frame.line}"
    return KeepingLine(
        f"`{state}` is made of its own last value, so it keeps the graphs of all rounds",
        f"{capital(where)} (`{text}`) makes `{state}` of its own last value, whose graph keeps what all rounds before "
        f"made: run the rounds under torch.no_grad(), since nothing here calls backward(), or use "
        f"`{state}.detach()` there.",
        endless=True,
    )


def _goes_on(tree: ast.Module, scope: Scope, statement: ast.Assign, state: str) -> bool:
    """Whether rounds pass it on: a variable of a loop, or an attribute that forward() sets and nothing else cuts."""
    if not state.startswith("self."):
        loops = loops_around(tree, statement.lineno)
        begun = [item for item in nodes_of(loops[-1]) if isinstance(item, ast.Assign)] if loops else []
        others = [item for item in begun if item is not statement and state in map(variable, item.targets)]
        return bool(loops) and not others
    return getattr(scope, "name", "") in _FORWARD


def _takes_no_gradients(trees: Iterable[ast.Module]) -> bool:
    """Whether no line asks for gradients, switches them off, or cuts a graph."""
    for tree in trees:
        for item in nodes_of(tree):
            name = called_name(item) if isinstance(item, ast.Call) else getattr(item, "attr", None)
            if name in _TAKES_GRADIENTS | _CUTS - {"item", "tolist", "numpy"} or getattr(item, "arg", None) in _FROZEN:
                return False
            if name in _FROZEN:
                return False
            imported = [part.name for part in item.names] if isinstance(item, ast.Import) else []
            if isinstance(item, ast.ImportFrom):
                imported = [item.module or "", *(part.name for part in item.names)]
            if any(part.partition(".")[0] in _LEADS_ELSEWHERE or part.endswith("Trainer") for part in imported):
                return False
    return True


def _with_weights(files: Mapping[str, ast.Module]) -> frozenset[str]:
    """The names of what may ask for gradients: layers of torch, weights, and objects of classes with a forward()."""
    makers = [
        item.name
        for tree in files.values()
        for item in nodes_of(tree)
        if isinstance(item, ast.ClassDef) and any(getattr(part, "name", None) in _FORWARD for part in item.body)
    ]
    objects, found = Objects(files), set[str]()
    for name in makers:
        found |= objects.of(name)
    for tree in files.values():
        for item in nodes_of(tree):
            calls = [part for part in nodes_of(item) if isinstance(part, ast.Call)] if isinstance(item, _BINDS) else []
            if any(_is_layer(tree, part) or called_name(part) in ("Sequential", "ModuleList") for part in calls):
                found |= {held for part in targets_of(item) if (held := last_name(part)) is not None}
    return frozenset(found)


def _runs_often(files: Mapping[str, ast.Module], scope: Scope) -> bool:
    """Whether a function is called for each item or batch: by its caller's loop, or as what others call so."""
    name: str | None = getattr(scope, "name", None)
    if name is None:
        return False
    if name.startswith("__") or name in _PER_BATCH:
        return name != "__init__"
    for tree in files.values():
        rounds = [item for item in nodes_of(tree) if isinstance(item, (*LOOPS, *COMPREHENSIONS))]
        inside = (part for item in rounds for part in nodes_of(item))
        if any(isinstance(part, ast.Call) and called_name(part) == name for part in inside):
            return True
    return False


def _is_of_rounds(tree: ast.Module, statement: ast.Assign) -> bool:
    """Whether what is joined is older than the round: no channels of a layer, nor a batch that each round has anew."""
    scope, name = scope_of(tree, statement.lineno), variable(statement.targets[0])
    if name is None:
        return False
    sets = [item for item in own_nodes(scope) if isinstance(item, (*_BINDS, ast.AugAssign)) and item is not statement]
    if name.startswith("self."):
        return not any(name in map(variable, [*targets_of(item), getattr(item, "target", item)]) for item in sets)
    loops = loops_around(tree, statement.lineno)
    if not loops or getattr(scope, "name", None) in _FORWARD:
        return False
    anew = [item for item in sets if spans(loops[-1], item.lineno) and not isinstance(item, ast.AugAssign)]
    heads = [item for item in loops if isinstance(item, (ast.For, ast.AsyncFor))]
    bound = {variable(part) for item in [*anew, *heads] for one in targets_of(item) for part in nodes_of(one)}
    return name not in bound
