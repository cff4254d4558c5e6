"""What walks through something nested: the line that nests it is named, and no reader is to end torch's recursion."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.types.snapshot import HeldNumber, PythonFrame
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, summary, verdict
from tests.support.synth import Box

LOW, HIGH = 0x7FFC_0000_0000, 0x7FFC_0080_0000
STACK = (LOW, HIGH, "rw-p", 0, "[stack]")
PICKLE = "/usr/lib/python3.11/lib-dynload/_pickle.cpython-311-x86_64-linux-gnu.so"
PYTHON = (s.PYTHON, "_PyEval_EvalFrameDefault")


def advised(run: Path, frames: list[Any], source: str = "f(x)\n", line: int = 1, **how: Any) -> str:
    file = run / "train.py"
    file.write_text(source, encoding="utf-8")
    os.utime(file, (0, 0))  # before the recorded process began
    how = {"python": [("<module>", str(file), line)], **how}
    report = died(
        run, addr=LOW - 8, code=2, stack=(LOW, HIGH), mappings=[PROGRAM, STACK], error_code=6,
        registers={"rsp": LOW + 16, "trapno": 14}, sp=LOW + 16, stack_of=[*(frames * 100), PYTHON],
        native_total=90_000, **how,
    )  # fmt: skip
    assert verdict(report)[0] == "stack-overflow"
    return advice(report)


@pytest.mark.parametrize(
    ("image", "function", "says"),
    [
        (
            s.TORCH_CPU,
            "torch::jit::ParserImpl::parseBaseExp()",
            "TorchScript's parser calls itself for each level of nes",
        ),
        (PICKLE, "save.constprop.0", "pickle calls itself for each object that an object holds"),
        (
            PICKLE.replace("pickle", "json"),
            "encoder_listencode_obj",
            "json calls itself for each container inside a cont",
        ),
        (s.PYTHON, "compiler_visit_expr1", "Python's compiler calls itself for each level of nesting in the source"),
        (s.PYTHON, "list_richcompare", "The comparison calls itself for each container inside a container"),
        (
            "/usr/lib/libxml2.so.2",
            "xmlParseNode",
            "xmlParseNode of libxml2.so.2 calls itself: look for something nested",
        ),
        (s.VICTIM, "save", "End the recursion of save (libvictim.so)"),
    ],
)
def test_each_walker_says_what_is_nested(image: str, function: str, says: str, run: Path) -> None:
    """The look-alike at the end is a function of the program's own library, which can be changed."""
    assert advised(run, [(image, function)]).startswith(says)


WRAPS = [
    ("node = Node(value, node)", True),
    ("text = '(%s * x)' % text", True),
    ("text = f'({text} + 1)'", True),
    ("child.text = op % ((child.text, 2) if two else child.text)", True),
    ("tree = [tree, leaf]", True),
    ("data = {'next': data}", True),
    ("items = map(step, items)", True),
    ("h = layer(h)", False),
    ("h = Layer(h)", False),
    ("n = n + 1", False),
    ("node = Node(value, other)", False),
]
CLASSES = "class Node:\n    pass\nclass Layer(nn.Module):\n    pass\n"


@pytest.mark.parametrize(("line", "named"), WRAPS)
def test_the_line_that_puts_a_variable_around_itself_in_a_loop_is_named(line: str, named: bool, run: Path) -> None:
    looped = f"{CLASSES}for i in range(n):\n    {line}\npickle.dumps(node)\n"
    said = advised(run, [(PICKLE, "save")], looped, line=7)
    assert (f"line 6 (`{line[:20]}" in said) == named
    assert ("may add one in each round of a loop" in said) == named
    once = f"{CLASSES}if n:\n    {line}\npickle.dumps(node)\n"
    assert "round of a loop" not in advised(run, [(PICKLE, "save")], once, line=7)


def test_without_such_a_line_what_is_passed_is_named(run: Path) -> None:
    said = advised(run, [(PICKLE, "save")], "best = search(net)\npickle.dumps(best)\n", line=2)
    assert "and `best` (line 1: `best = search(net)`), which line 2 passes, is nested too deep for the stack" in said


def test_deepcopy_is_pythons_own_recursion(run: Path) -> None:
    """Of a function of the program's the recursion is to be ended."""
    deep = [("deepcopy", "/usr/lib/python3.11/copy.py", 146), ("_reconstruct", "/usr/lib/python3.11/copy.py", 271)] * 30
    said = advised(run, [PYTHON, (s.PYTHON, "object_call")], python=[*deep, ("<module>", str(run / "train.py"), 1)])
    assert said.startswith("copy.deepcopy() calls itself for each object that an object holds")
    own = [("visit", str(run / "train.py"), 1)] * 60
    assert advised(run, [PYTHON, (s.PYTHON, "object_call")], python=own).startswith("End the recursion at train.py:1")


PARSED = """class Node:
    def __init__(self, kids):
        self.kids = list(kids)
    def __len__(self):
        return 1 + len(self.kids)
class Encoder(Module):
    def forward(self, node):
        return [self(kid) for kid in node.kids]
def grow(n):
    root = Node([])
    for i in range(n):
        root = Node(kids=[Node([]), root])
"""
FORWARD = [("Encoder.forward", 8), ("Module._call_impl", 0), ("Module._wrapped_call_impl", 0)]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("[self(kid) for kid in node.kids]", "line 12 (`root = Node(kids=[Node([]), root])`) may add a level in each"),
        ("self.forward(node.kids[0])", "line 12 ("),
        ("self(node.next)", "Either `node.next` (line 8) leads in a circle, or the data is deeper than the stack"),
        ("self(items[1:])", None),  # nothing of what it is given
        ("self(node)", None),
    ],
)
def test_what_a_function_goes_down_by_is_named(line: str, says: str | None, run: Path) -> None:
    """Its recursion is not to be ended: the data is that deep."""
    at = [
        (name, str(run / "train.py") if number else "/x/torch/nn/modules/module.py", number) for name, number in FORWARD
    ]
    source = PARSED.replace("[self(kid) for kid in node.kids]", line)
    said = advised(run, [PYTHON, (s.PYTHON, "slot_tp_call")], source, python=at * 40)
    if says is None:
        assert said.startswith("End the recursion at train.py:8 in Encoder.forward")
    else:
        assert says in said and "Walk" in said.replace("walk", "Walk") and "`ulimit -s` before the start" in said


LOOKUP = """class View:
    def __init__(self, base):
        self.base = base
    def {name}(self, name):
        return getattr(self.base, name)
"""


@pytest.mark.parametrize("name", ["__getattr__", "find"])
def test_lookup_that_asks_for_an_attribute_of_its_own_is_told_how_to_begin(name: str, run: Path) -> None:
    """Unpickled without __init__; the look-alike is a method that anybody calls."""
    frames = [(f"View.{name}", str(run / "train.py"), 5)] * 60
    said = advised(run, [PYTHON, (s.PYTHON, "slot_tp_getattr_hook")], LOOKUP.format(name=name), python=frames)
    guard = 'Begin it with `if name == "base" or name.startswith("__"): raise AttributeError(name)`'
    assert (guard in said) == (name == "__getattr__")


TRACED = """def export(net, x):
    return torch.jit.trace(net, x)
def replay(traced, houses):
    return traced(torch.rand(houses))
"""
INTERPRETER = [
    (s.TORCH_CPU, "torch::jit::interpreter::CodeImpl::emitNode(torch::jit::Node*)"),
    (s.TORCH_CPU, "torch::jit::interpreter::CodeImpl::emitUse(torch::jit::Value*, bool)"),
]


@pytest.mark.parametrize("traces", [True, False])
def test_graph_of_a_trace_is_a_chain_of_operators(traces: bool, run: Path) -> None:
    """No source has that many levels; where nothing is traced, only the chain is told."""
    source = TRACED if traces else TRACED.replace("jit.trace(", "jit.script(")
    said = advised(run, INTERPRETER, source, line=4)
    assert said.startswith("TorchScript's interpreter calls itself for each operator of a chain in the graph")
    assert ("torch.jit.trace (line 2) unrolls Python loops" in said) == traces
    assert "`houses`" not in said and "source" not in said


@pytest.mark.parametrize("is_number", [True, False])
def test_a_number_is_not_what_is_nested(is_number: bool, run: Path) -> None:
    source = "best = search(net)\npickle.dumps(best)\n"
    frame = PythonFrame("<module>", str(run / "train.py"), 2)
    numbers = (HeldNumber("best", 16, frame, 0),) if is_number else ()
    said = advised(run, [(PICKLE, "save")], source, line=2, numbers=numbers)
    assert ("`best`" in said) != is_number
    assert ("and what it is given at line 2 is nested" in said) == is_number


GUARD = "import sys\nsys.setrecursionlimit(10**6)\n"


@pytest.mark.parametrize(
    ("image", "function", "lines", "guarded"),
    [
        (PICKLE, "save", GUARD, True),
        (s.PYTHON, "_PyEval_EvalFrameDefault", GUARD, True),
        (s.VICTIM, "save", GUARD, False),  # the program's own code asks no limit of Python's
        (s.PYTHON, "subtype_dealloc", GUARD, False),
        (PICKLE, "save", "import sys\nsys.setrecursionlimit(10**4)\n", False),  # it went further than that
        (PICKLE, "save", "import sys\nlimit = 10**6\n", False),
    ],
)
def test_line_that_took_the_guard_of_python_away(
    image: str, function: str, lines: str, guarded: bool, run: Path
) -> None:
    said = advised(run, [(image, function)], f"{lines}pickle.dumps(x)\n", line=3)
    assert ("line 2 (`sys.setrecursionlimit(10 ** 6)`)" in said) == guarded


LINKED = """class Job:
    def __init__(self, dependency):
        self.dependency = dependency
class Pipeline:
    def add(self):
        self.last = Job(dependency=self.last)
    def save(self):
        pickle.dumps(self.last)
"""


def test_line_by_which_an_object_holds_the_one_before(run: Path) -> None:
    """From call to call; a class that keeps another thing adds none."""
    said = advised(run, [(PICKLE, "save")], LINKED, line=8)
    assert "and line 6 may add one each time that add() runs: `self.last = Job(dependency=self.last)`" in said
    assert "leave `dependency` out (`Job.__getstate__`) if that can be set again" in said
    other = advised(run, [(PICKLE, "save")], LINKED.replace("=self.last", "=self.first"), line=8)
    assert "may add one" not in other and "and `self.last` (line 6" in other


TREE = """class Term:
    def __init__(self, op, args=()):
        self.op, self.args = op, list(args)
def parse(n):
    term = Term("x")
    for _ in range(n):
        term = Term("+", [term, Term("x")])
    return term
def mutate(term):
    return copy.deepcopy(term)
"""
DEEP = [("deepcopy", "/usr/lib/python3.11/copy.py", 146), ("_reconstruct", "/usr/lib/python3.11/copy.py", 271)] * 30


def copied(run: Path, source: str, *, cut: bool = True) -> tuple[str, str]:
    """Headline and advice of a deepcopy() of which the innermost frames were kept, or all."""
    file = run / "train.py"
    file.write_text(source, encoding="utf-8")
    os.utime(file, (0, 0))
    box = Box(pid=101, ppid=99).alloc(0x9000, 64, ("parse", str(file), 7))
    report = died(
        run, box=box, addr=LOW - 8, code=2, stack=(LOW, HIGH), mappings=[PROGRAM, STACK], error_code=6,
        registers={"rsp": LOW + 16, "trapno": 14}, sp=LOW + 16, native_total=90_000,
        stack_of=[*([PYTHON, (s.PYTHON, "object_call")] * 100), PYTHON],
        python=[*DEEP, *([] if cut else [("mutate", str(file), 10)])],
    )  # fmt: skip
    assert verdict(report)[0] == "stack-overflow"
    return summary(report), advice(report)


def test_tree_is_copied_in_a_loop_and_a_larger_stack_holds_more(run: Path) -> None:
    """Its links are the data; the depth that the stack held is known."""
    told, then = copied(run, TREE)
    assert "(train.py:7 may add one, held by `Term.args`), 90000 frames of native code deep" in told
    assert "each held by `Term.args`. Copy the objects in a loop (`Term.__deepcopy__`, with a list as stack)" in then
    assert "A larger stack holds more in proportion: 8.0 MiB held 90000 frames (`ulimit -s` before the start)" in then


@pytest.mark.parametrize(
    ("source", "cut", "named"),
    [(TREE, True, True), (f"{TREE}copy.deepcopy(parse(3))\n", True, False), (TREE, False, False)],
    ids=["one call", "two calls", "its line is known"],
)
def test_call_that_led_there_where_the_stack_was_cut(source: str, cut: bool, named: bool, run: Path) -> None:
    told, _ = copied(run, source, cut=cut)
    assert (
        "; the only call of it that was found in the program is train.py:10 (`copy.deepcopy(term)`)." in told
    ) == named


DUMPED = """class Store:
    def save(self, path):
        best = search(self)
        with open(path, "wb") as f:
            {}
"""


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("pickle.dump(self, f)", "and `self` (a Store), which line 5 passes, is nested too deep"),
        ("pickle.dump(obj=best, file=f)", "and `best` (line 3: `best = search(self)`), which line 5 passes,"),
        ("torch.save(best, f)", "and `best` (line 3: `best = search(self)`), which line 5 passes,"),
        ("pickle.Pickler(f).dump(best)", "and `best` (line 3: `best = search(self)`), which line 5 passes,"),
        ("np.save(f, best)", "and `best` (line 3: `best = search(self)`), which line 5 passes,"),
        ("pickle.dump({'best': best, 'of': self}, f)", "and what it is given at line 5 is nested too deep"),
        ("queue.put(best)", "and `best` (line 3: `best = search(self)`), which line 5 passes,"),
        ("send(best, f)", "and what it is given at line 5 is nested too deep"),  # which of the two is not known
        ("trainer.checkpoint(path)", "and what it is given at line 5 is nested too deep"),
        ("best.save(path)", "and what it is given at line 5 is nested too deep"),
    ],
)
def test_the_file_is_not_what_pickle_walks_through(call: str, says: str, run: Path) -> None:
    said = advised(run, [(PICKLE, "save")], DUMPED.format(call), line=5)
    assert says in said and "`f`" not in said


TRIE = """class Node:
    def __init__(self):
        self.children = {}
class Trie:
    def add(self, word):
        node = self.root
        for c in word:
            BODY
    def save(self, f):
        pickle.dump(self, f)
def words(path):
    with open(path, newline="\\n") as f:
        for line in f:
            yield line.strip()
def build(trie, path):
    for word in words(path):
        trie.add(word)
"""
IN = "\n            "
GROWS = [
    f"nxt = node.children.get(c){IN}if nxt is None: nxt = node.children[c] = Node(){IN}node = nxt",
    f"if c not in node.children: node.children[c] = Node(){IN}node = node.children[c]",
    "node = node.children.setdefault(c, Node())",
]


@pytest.mark.parametrize("body", GROWS, ids=["by get", "by item", "by setdefault"])
def test_a_loop_that_puts_a_node_below_the_last_one_grows_a_tree(body: str, run: Path) -> None:
    source = TRIE.replace("BODY", body)
    last = source.splitlines().index("        pickle.dump(self, f)") + 1
    said = advised(run, [(PICKLE, "save")], source, line=last)
    assert "may add one in each round of its loop" in said and ", each held by `Node.children`. Save what it" in said
    assert f"A `word` adds a level for each item: see the longest at line {last + 7} (" in said
    assert f"Lines of the file of line {last + 2} (`open(path, newline='\\n')`) end with '\\n' only" in said
    assert f"Line {last} passes `self` (a Trie)." in said and "__getstate__" not in said


@pytest.mark.parametrize(
    ("old", "new", "grows", "ends"),
    [
        ("Node())\n", "Node())\n            node = self.root\n", False, False),  # each one below the root
        (".setdefault(c, Node())", "[c]", False, False),  # only walks
        ("setdefault(c, Node())", "setdefault(c, found)", False, False),  # not known to be another one
        (', newline="\\n"', "", True, False),
        (', newline="\\n"', ', newline=""', True, False),  # all ends of a line are ends
        ("for word in words(path)", "for word in found(path)", True, False),
    ],
    ids=["reset", "walks", "unknown", "any end", "untranslated", "other words"],
)
def test_other_loops_grow_no_tree(old: str, new: str, grows: bool, ends: bool, run: Path) -> None:
    source = TRIE.replace("BODY", GROWS[2]).replace(old, new)
    last = source.splitlines().index("        pickle.dump(self, f)") + 1
    said = advised(run, [(PICKLE, "save")], source, line=last)
    assert (("may add one" in said), ("end with '" in said)) == (grows, ends)


def test_a_tree_of_containers_grows_by_what_an_outer_loop_has(run: Path) -> None:
    source = (
        "tree = {}\nfor path in paths:\n    node = tree\n    for part in path:\n"
        "        node = node.setdefault(part, {})\njson.dumps(tree)\n"
    )
    said = advised(run, [(PICKLE.replace("pickle", "json"), "encoder_listencode_obj")], source, line=6)
    assert (
        "and line 5 may add one in each round of its loop: `node = node.setdefault(part, {})`. Make the data fl" in said
    )
    assert "A `path` adds a level for each item: see the longest at line 2 (`paths`)" in said
