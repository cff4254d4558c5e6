"""Lines that put something around what a variable held, and lines that only look like one."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.slicing.wraps import (
    links,
    set_elsewhere,
    wraps_of_class,
    wraps_of_classes,
    wraps_of_library,
)

CLASS = "class Box:\n    def __init__(self, inner):\n        self.inner = inner\n"

GROWING = [
    ("def start(state):\n    state['it'] = Box(state['it'])\n", 5, "each time that start() runs"),
    ("def start(state):\n    old = state['it']\n    state['it'] = Box(old)\n", 6, "each time that start() runs"),
    ("def start(state):\n    if state:\n        state.it = Box(state.it)\n", 6, "each time that it runs"),
    ("def start(m):\n    if m.done:\n        return\n    m.it = Box(m.it)\n", 7, "each time that it runs"),
    ("for i in range(9):\n    it = Box(it)\n", 5, "in each round of its loop"),
    ("for i in range(9):\n    if i % 2:\n        it = Box(inner=it)\n", 6, "each time that it runs"),
    ("def wrap(it):\n    return Box(it)\nfor i in range(9):\n    it = wrap(it)\n", 7, "in each round of its loop"),
    ("def wrap(it):\n    box = Box(it)\n    return box\nfor i in range(9):\n    it = wrap(it)\n", 8, "in each round"),
    ("for i in range(9):\n    box = Box(last)\n    last = box\n", 5, "in each round of its loop"),
    ("def add(self):\n    box = Box(self.last)\n    self.last = box\n", 5, "each time that add() runs"),
    ("def start():\n    global it\n    it = Box(it)\n", 6, "each time that start() runs"),
    ("def patch(m):\n    setattr(m, 'f', Box(getattr(m, 'f')))\n", 5, "each time that patch() runs"),
    ("class Other(Box):\n    pass\nfor i in range(9):\n    it = Other(it)\n", 7, "in each round of its loop"),
]
PLAIN = [
    "it = Box(it)\n",  # once
    "def start(it):\n    it = Box(it)\n    run(it)\n",  # a variable of the call alone
    "for item in items:\n    item = Box(item)\n",  # another one in each round
    "for i in range(9):\n    it = make()\n    it = Box(it)\n",  # made anew
    "for i in range(9):\n    it = Box(other)\n",
    "def start(state):\n    state['it'] = Box(state['loader'])\n",
    "def main():\n    state = {}\n    state['it'] = Box(state['it'])\n",  # a variable of the call alone
    "for i in range(9):\n    box = Box(last)\n    run(box)\n",
]


@pytest.mark.parametrize(("source", "line", "when"), GROWING)
def test_line_that_adds_a_level(source: str, line: int, when: str) -> None:
    files = {"train.py": ast.parse(f"{CLASS}{source}")}
    found = wraps_of_class(files, "Box", "inner")
    assert [item.line for item in found] == [line]
    assert found[0].when.startswith(when)
    assert [item.line for item in wraps_of_classes(files)] == [line]


@pytest.mark.parametrize("source", PLAIN)
def test_line_that_wraps_once_or_another_one(source: str) -> None:
    assert wraps_of_class({"train.py": ast.parse(f"{CLASS}{source}")}, "Box", "inner") == []


def test_class_that_keeps_something_else() -> None:
    """A copy, or another parameter."""
    source = "class Box:\n    def __init__(self, x):\n        self.inner = copy(x)\nfor i in y:\n    it = Box(it)\n"
    assert wraps_of_class({"train.py": ast.parse(source)}, "Box", "inner") == []
    data = "@dataclass\nclass Box:\n    value: int\n    inner: object\nfor i in y:\n    it = Box(1, it)\n"
    assert [item.line for item in wraps_of_class({"train.py": ast.parse(data)}, "Box", "inner")] == [6]
    assert wraps_of_class({"train.py": ast.parse(data)}, "Box", "value") == []


def test_what_is_to_be_written_there() -> None:
    """Nothing for a chain, whose first object holds None, nor where other arguments may belong to what is inside."""
    simple = {"train.py": ast.parse(f"{CLASS}for i in y:\n    it = Box(it)\n")}
    assert wraps_of_class(simple, "Box", "inner")[0].mended == "it = Box(original)"
    chain = {"train.py": ast.parse(f"{CLASS.replace('inner)', 'inner=None)')}for i in y:\n    it = Box(it)\n")}
    assert wraps_of_class(chain, "Box", "inner")[0].mended is None
    library = {"train.py": ast.parse("for i in y:\n    data = Subset(data, keep)\n")}
    assert wraps_of_library(library, ["Subset"])[0].mended == ""


@pytest.mark.parametrize(
    ("source", "attribute"),
    [
        ("for i in y:\n    node.prev = last\n    last = node\n", "prev"),
        ("for i in y:\n    tail.next = node\n    tail = node\n", "next"),
        ("for i in y:\n    node['child'] = {}\n    node = node['child']\n", None),
        ("def add(self, node):\n    node.prev = self.last\n    self.last = node\n", "prev"),
        ("def add(self, node, end):\n    self.tail.next = node\n    self.tail = None if end else node\n", "next"),
    ],
)
def test_object_that_is_linked_to_the_last_one(source: str, attribute: str | None) -> None:
    found = links({"train.py": ast.parse(source)})
    assert [item.attribute for item in found] == [attribute]


def test_attribute_that_is_no_link() -> None:
    assert links({"train.py": ast.parse("for i in y:\n    node.value = loss\n    last = node\n")}) == []
    assert links({"train.py": ast.parse("node.prev = last\nlast = node\n")}) == []
    either = "def add(self, node, end):\n    self.tail.next = node\n    self.tail = None if end else other\n"
    assert links({"train.py": ast.parse(either)}) == []


def test_lines_that_may_close_a_circle() -> None:
    source = f"{CLASS}    def put(self, x):\n        self.inner = x\nclass Other:\n    def __init__(self):\n"
    source += "        self.inner = 1\nbox.inner = root\n"
    found = set_elsewhere({"train.py": ast.parse(source)}, "Box", "inner")
    assert [node.lineno for _, node in found] == [9, 5]
