"""Code that calls itself for what is inside of something: what nests that deep, and the line that nests it.

A reader cannot end the recursion of a parser, of pickle or of a destructor. He can make the data flat that they walk
through. Data that grows by one level in each round of a loop is found by the line that puts a variable around itself.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import structs

from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.native.endless_states import EndlessState, callers, endless_state
from pytracer.analyze.evidence.native.grown_trees import growing_line, rounds_words
from pytracer.analyze.evidence.native.native_stack import image_name
from pytracer.analyze.evidence.native.walked import entry_words, walked
from pytracer.analyze.evidence.own_code.own_libraries import allocating_frames
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.wraps import Wrap, links, wraps_of_classes
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.loops import LOOPS
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.recursion_limits import recursion_limit
from pytracer.analyze.naming import LineWords, line_in, short_file
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import ProcessView
from pytracer.report.job import NativeFrame, PythonFrame, StackCycle

_QUOTED = 44
_SEVERAL = 3
_LAST_GUARDED, _DEFAULT_LIMIT = 11, 1000
_SOURCE = "level of nesting in the source that it compiles"
_STATEMENTS = "Write it as statements with variables in between, or bound its depth"
_OBJECT = "object that an object holds"
_CONTAINER = "container inside a container"
_UNLINK = "Keep the objects in a flat list, or leave {0} out (`{1}__getstate__`) if that can be set again"
_UNLINK_LISTED = (
    "Line {2} (`{3}`) keeps them in a list already: leave {0} out (`{1}__getstate__`), and set it again after loading "
    "(by their order), or save what they hold as flat lists"
)
_COPY = (
    "Copy the objects in a loop (`{1}__deepcopy__`, with a list as stack), or leave {0} out if the copy can do without"
)
_REBUILD = "Save what it was built from (a flat list), and build it anew after loading"
_FLAT = "Make the data flat, such as a list of rows that refer to each other by number"


class Nesting(msgspec.Struct, frozen=True):
    """`who` calls itself once for each `level`; `change`: what to do about it, in which {0} and {1} are to be filled.

    {0}: what is left out, "links" or an attribute; {1}: the class of the objects and a dot, where that is known.
    `called`: by which names a program calls it.
    """

    who: str
    level: str
    change: str
    called: tuple[str, ...] = ()

    def advice(self, attribute: str | None = None, owner: str | None = None) -> str:
        """`change`, of the objects of a class that hold each other by an attribute."""
        return self.change.format(
            f"`{attribute}`" if attribute else "links", f"{owner}." if attribute and owner else ""
        )

    @property
    def words(self) -> str:
        """`pickle calls itself for each object that an object holds`."""
        return f"{self.who} calls itself for each {self.level}"

    @property
    def clause(self) -> str:
        """As a part of a sentence."""
        return f"the{self.words[3:]}" if self.words.startswith("The ") else self.words


_ITERATORS = Nesting(
    "The interpreter",
    "map(), zip(), filter(), chain() or generator that was put around another",
    "Make a list in between, or apply the steps in one loop",
)
_DEALLOC = Nesting(
    "The interpreter",
    "object that is freed because the last one held it",
    "Cut the chain (history, parents, linked nodes), such as by a loop that drops the links, or keep them in a list",
)
_GRAPH = Nesting(
    "TorchScript's interpreter",
    "operator of a chain in the graph",
    "Keep the loop as one (torch.jit.script), or run the graph of one round in a Python loop",
)
# By the innermost of the functions that repeat, else by any of them.
_FUNCTIONS = (
    (r"(map|filter|zip|chain|islice|starmap|enum|takewhile|dropwhile)_next\b", _ITERATORS),
    (r"subtype_dealloc|_Py_Dealloc", _DEALLOC),
    (r"torch::jit::Parser", Nesting("TorchScript's parser", _SOURCE, _STATEMENTS)),
    (r"torch::jit::interpreter::", _GRAPH),
    (r"torch::jit::(?:to_ir|.*::emit[A-Z])", Nesting("TorchScript's compiler", _SOURCE, _STATEMENTS)),
    (r"torch::jit::(?:Unp|P)ickler::", Nesting("torch's pickler", _CONTAINER, _FLAT)),
    (r"(list|dict|tuple|set)_repr", Nesting("repr()", _CONTAINER, _FLAT)),
    (r"tuplehash", Nesting("hash()", _CONTAINER, _FLAT)),
    (r"(list|dict|tuple)_(richcompare|equal)|do_richcompare", Nesting("The comparison", _CONTAINER, _FLAT)),
    (
        r"compiler_visit|compiler_expr|validate_expr|astfold_|symtable_visit|ast2obj_|PyPegen|_rule(\.|$)",
        Nesting("Python's compiler", _SOURCE, _STATEMENTS),
    ),
    (r"[wr]_(complex_)?object\b", Nesting("marshal", _CONTAINER, _FLAT)),
)
PICKLE = Nesting("pickle", _OBJECT, _UNLINK, ("dump", "dumps", "save"))
JSON = Nesting("json", _CONTAINER, _FLAT, ("dump", "dumps"))
_DEEPCOPY = Nesting("copy.deepcopy()", _OBJECT, _COPY, ("deepcopy",))
_IMAGES = (
    ("_pickle.", PICKLE),
    ("_json.", JSON),
    ("_yaml.", Nesting("yaml", _CONTAINER, _FLAT)),
)
_PYTHON = (
    ("copy.py", _DEEPCOPY),
    ("pickle.py", PICKLE),
    ("json/encoder.py", JSON),
    ("dataclasses.py", Nesting("dataclasses.asdict()", _OBJECT, _FLAT, ("asdict", "astuple"))),
)
_COUNTED = ("_PyEval_EvalFrame", "PyObject_Repr", "PyObject_Str", "PyObject_RichCompare", "do_richcompare")
_WRAPS = ("map", "filter", "zip", "chain", "islice", "partial", "Subset", "ConcatDataset")


def of_native(frames: Sequence[NativeFrame]) -> Nesting | None:
    """Of the native functions that repeat; None where they are not known."""
    for frame in frames:
        name = frame.function or ""
        found = next((item for pattern, item in _FUNCTIONS if re.match(pattern, name)), None)
        image = image_name(frame.image)
        found = found or next((item for begin, item in _IMAGES if image.startswith(begin)), None)
        if found is not None:
            return found
    return None


def _asks_limit(frame: NativeFrame) -> bool:
    """Whether CPython counts its calls against the limit of recursion."""
    name, image = frame.function or "", image_name(frame.image)
    return name.startswith(_COUNTED) or image.startswith(("_pickle.", "_json."))


def of_python(frames: Sequence[PythonFrame]) -> Nesting | None:
    """Of functions of Python's library that repeat."""
    files = [frame.file or "" for frame in frames]
    return next((item for end, item in _PYTHON if any(file.endswith(f"/{end}") for file in files)), None)


def nesting_advice(view: ProcessView, found: Nesting, deeper: str) -> str:
    """`pickle calls itself for each object that an object holds. Line 18 (...) puts one around the last. ...`

    `deeper`: how the thread gets a larger stack.
    """
    frames = callers(program_frames(view))
    wraps = wrapping_line(view, frames)
    first = found.words
    if found == _GRAPH:
        return f"{first}{_traced(view, frames)}. {found.change}. {deeper}"
    endless = _endless(view, found)
    if endless is not None:
        return endless.advice(_place(frames, endless.file, endless.line))
    files, given = _files(view, frames), walked(view, frames, found.called)
    link = linking_line(files, found)
    if link is not None and (wraps is None or link.owner is not None):
        words = link_words(found, link, _place(frames, link.file, link.line))
        rounds = rounds_words(files, link, frames[0].file if frames else None)
        passes = f" Line {frames[0].line} passes {given}." if given is not None and link.tree else ""
        entry = entry_words(view, frames, found.called, link.last, link.file) if link.last is not None else None
        passes += f" Line {frames[0].line} passes the last of them (`{link.last}`) as {entry}." if entry else ""
        return f"{words}{rounds}.{passes} {deeper}"
    if wraps is not None:
        where, text = wraps
        return (
            f"{first}: {where} (`{shortened(text, _QUOTED)}`) may add one in each round of a loop. {found.advice()}. "
            f"{deeper}"
        )
    passed = f"{first}, and {_passed(frames, given)} is nested too deep for the stack"
    linked = linking_lines(files, found)
    held = list(dict.fromkeys((item.owner, item.attribute) for item in linked))
    if found.level != _OBJECT or not linked or any(None in item for item in held) or len(linked) > _SEVERAL:
        return f"{passed}. {found.advice()}. {deeper}"
    each = [_linked_at([item for item in linked if (item.owner, item.attribute) == one], frames) for one in held]
    advice = found.advice(held[0][1], held[0][0]) if len(held) == 1 else found.advice()
    return f"{passed}: its objects may be linked by {' or '.join(each)}. {advice}. {deeper}"


def _endless(view: ProcessView, found: Nesting) -> EndlessState | None:
    """What makes a new object for the state of each, where states are asked."""
    return endless_state(_files(view, program_frames(view))) if found in (PICKLE, _DEEPCOPY) else None


def _linked_at(links_: Sequence[Wrap], frames: Sequence[PythonFrame]) -> str:
    """`` `Job.after` (line 12 or line 15) ``."""
    places = (_place(frames, item.file, item.line) for item in links_)
    return f"`{links_[0].owner}.{links_[0].attribute}` ({' or '.join(places)})"


def _passed(frames: Sequence[PythonFrame], given: str | None) -> str:
    """`` `best`, which line 24 passes, ``."""
    line = frames[0].line if frames else None
    if given is not None:
        return f"{given}, which line {line} passes,"
    return f"what it is given at line {line}" if line is not None else "what it is given"


def only_call(view: ProcessView, found: Nesting) -> str | None:
    """``train.py:43 (`copy.deepcopy(formula)`)``: the program's only call, where the stack was cut before its line."""
    if program_frames(view):
        return None
    calls = {
        (file, node.lineno, shortened(ast.unparse(node), _QUOTED))
        for file, tree in _files(view, []).items()
        for node in nodes_of(tree)
        if isinstance(node, ast.Call) and called_name(node) in found.called
    }
    if len(calls) != 1:
        return None
    file, line, text = calls.pop()
    return f"{short_file(file)}:{line} (`{text}`)"


def adding_line(view: ProcessView, found: Nesting) -> LineWords | None:
    """`line 26`: the one that may add a level."""
    frames = program_frames(view)
    link = linking_line(_files(view, frames), found)
    if link is not None:
        return _place(frames, link.file, link.line)
    wraps = wrapping_line(view, frames) if found != _GRAPH else None
    return wraps[0] if wraps is not None else None


def adding_words(view: ProcessView, found: Nesting) -> str | None:
    """`` line 26 may add one, held by `Job.before` ``, for the headline."""
    endless = _endless(view, found)
    if endless is not None:
        return endless.words(_place(program_frames(view), endless.file, endless.line))
    adds, link = adding_line(view, found), linking_line(_files(view, program_frames(view)), found)
    if adds is None:
        return None
    owner = f"{link.owner}." if link is not None and link.owner else None
    held = f", held by `{owner}{link.attribute}`" if link is not None and owner and link.attribute else ""
    return f"{adds} may add one{held}"


def deepening_line(view: ProcessView, found: Nesting) -> LineWords | None:
    """The line that makes what is nested so deep: it adds a level, or traces a loop."""
    endless = _endless(view, found)
    if endless is not None:
        return _place(program_frames(view), endless.file, endless.line)
    traced = _traced(view, program_frames(view)) if found == _GRAPH else None
    return traced if isinstance(traced, LineWords) else adding_line(view, found)


def _traced(view: ProcessView, frames: list[PythonFrame]) -> str:
    """`. torch.jit.trace (line 31) unrolls Python loops` where the program traces."""
    found = {
        (file, node.lineno)
        for file, tree in _files(view, frames).items()
        for node in nodes_of(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("jit.trace", "jit.trace_module"))
    }
    if len(found) != 1:
        return ""
    file, line = found.pop()
    words = f". torch.jit.trace ({_place(frames, file, line)}) unrolls Python loops"
    return LineWords(words, file, line)


def wrapping_line(view: ProcessView, frames: list[PythonFrame]) -> tuple[LineWords, str] | None:
    """The only line of the program that puts a variable around itself in a loop."""
    found = only_wrap(_files(view, frames))
    if found is None:
        return None
    file, line = found
    text = line_text(view.process.snapshot, PythonFrame(function=None, file=file, line=line)) or ""
    return _place(frames, file, line), text


def only_wrap(files: Mapping[str, ast.Module]) -> tuple[str, int] | None:
    """Its file and number."""
    nodes = [item for tree in files.values() for item in nodes_of(tree)]
    classes = {item.name for item in nodes if isinstance(item, ast.ClassDef) and _is_holder(item)}
    found = {
        (file, line)
        for file, tree in files.items()
        for loop in nodes_of(tree)
        if isinstance(loop, LOOPS)
        for line in _wrapping(loop, classes)
    }
    return next(iter(found)) if len(found) == 1 else None


def _files(view: ProcessView, frames: list[PythonFrame]) -> dict[str, ast.Module]:
    """The program's; a deep stack may have lost its frames, and what allocated is known."""
    return program_files(view.process.snapshot, frames or allocating_frames(view))


def _place(frames: Sequence[PythonFrame], file: str, line: int) -> LineWords:
    """`line 9`, or `model.py:9` of another file than the innermost frame's."""
    return line_in(file, line, frames[0].file if frames else None)


def linking_line(files: Mapping[str, ast.Module], walker: Nesting) -> Wrap | None:
    """The only line of a program by which objects hold the one before them, in a loop or from call to call."""
    if walker.level not in (_OBJECT, _CONTAINER):
        return None
    found = linking_lines(files, walker)
    if not found:
        return growing_line(files)
    return found[0] if len(found) == 1 else None


def linking_lines(files: Mapping[str, ast.Module], walker: Nesting) -> list[Wrap]:
    """All lines by which objects, or what containers hold, may hold the one before them."""
    of_objects, linked = walker.level == _OBJECT, links(files)
    if not of_objects:  # what containers hold has no class
        linked = [structs.replace(item, owner=None) for item in linked]
    return [*(wraps_of_classes(files) if of_objects else ()), *linked]


def link_words(found: Nesting, link: Wrap, place: str) -> str:
    """With the attribute that is to be left out."""
    owner, name = link.owner, link.attribute
    text = f"{found.words}, and {place} may add one {link.when}: `{shortened(link.text, _QUOTED)}`"
    held = f", each held by `{owner}.{name}`" if owner and name else ""
    if link.tree:  # there is no tree without its links
        return f"{text}{held}. {_REBUILD if found == PICKLE else found.advice()}"
    if found.level != _OBJECT or not name:
        return f"{text}. {found.advice()}"
    if found == PICKLE and link.listed is not None:
        line, added = link.listed
        what, of = f"`{name}`", f"{owner}." if owner else ""
        return f"{text}{held}. {_UNLINK_LISTED.format(what, of, line, shortened(added, _QUOTED))}"
    return f"{text}{held}. {found.advice(name, owner)}"


def guard_words(view: ProcessView, cycle: StackCycle | None) -> str | None:
    """``line 9 (`sys.setrecursionlimit(1000000)`)``, without which Python would have ended the recursion.

    Since CPython 3.12 the limit is no longer that of C functions.
    """
    minor, frames = view.process.snapshot.python_minor, program_frames(view)
    if minor is None or minor > _LAST_GUARDED or cycle is None or (cycle.repeats or 0) < _DEFAULT_LIMIT:
        return None
    if not any(_asks_limit(frame) for frame in cycle.frames or ()):
        return None
    found = recursion_limit(_files(view, frames))
    if found is None or found.limit < (cycle.repeats or 0):
        return None
    return f"{_place(frames, found.file, found.line)} (`{shortened(found.text, _QUOTED)}`)"


def _is_holder(item: ast.ClassDef) -> bool:
    """A class of the program that is no module, and keeps what it is given."""
    return not any("Module" in ast.unparse(base) for base in item.bases)


def _wrapping(loop: ast.AST, classes: set[str]) -> Iterator[int]:
    for node in nodes_of(loop):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target = node.targets[0]
        if isinstance(target, (ast.Name, ast.Attribute)) and _holds(node.value, ast.unparse(target), classes):
            yield node.lineno


def _holds(value: ast.expr, name: str, classes: set[str]) -> bool:
    """Whether a value is something around the variable: a container, a string, an object or an iterator."""
    if isinstance(value, (ast.List, ast.Tuple, ast.Set)):
        return any(ast.unparse(item) == name for item in value.elts)
    if isinstance(value, ast.Dict):
        return any(ast.unparse(item) == name for item in value.values)
    if isinstance(value, ast.JoinedStr):
        return name in _parts(value)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mod):
        return name in _parts(value.right)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):  # "(" + text + ")"
        texts = any(isinstance(item, ast.Constant) and isinstance(item.value, str) for item in nodes_of(value))
        return texts and name in _parts(value)
    if isinstance(value, ast.Call):
        called = called_name(value) or ""
        if called == "format":
            return any(ast.unparse(item) == name for item in value.args)
        given = passed_values(value)
        return (called in classes or called in _WRAPS) and any(ast.unparse(item) == name for item in given)
    return isinstance(value, ast.Lambda) and name in _parts(value.body)


def _parts(node: ast.AST) -> set[str]:
    return {ast.unparse(item) for item in nodes_of(node) if isinstance(item, (ast.Name, ast.Attribute))}
