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


METHOD = "class Job:\n    def __init__(self):\n        self.needed = []\n    def after(self, *jobs):\n"
FLUENT = f"{METHOD}        self.needed.extend(jobs)\n        return self\n"
LOOPED = f"{METHOD}        for job in jobs:\n            self.needed.append(job)\n"
ADDED = f"{METHOD}        self.needed += jobs\n"


@pytest.mark.parametrize(
    ("source", "attribute"),
    [
        (FLUENT + "for i in y:\n    job = Job().after(last)\n    last = job\n", "needed"),
        (FLUENT + "for i in y:\n    job = Job()\n    job.after(last)\n    last = job\n", "needed"),
        (LOOPED + "for i in y:\n    job = Job()\n    job.after(last)\n    last = job\n", "needed"),
        (ADDED + "for a, b in zip(jobs, jobs[1:]):\n    b.after(a)\n", "needed"),
        (ADDED + "for a, b in pairwise(jobs):\n    b.after(a)\n", "needed"),
        (ADDED + "for i in range(1, n):\n    jobs[i].after(jobs[i - 1])\n", "needed"),
        ("for i in range(1, n):\n    jobs[i].before = jobs[i - 1]\n", "before"),
        ("for i in y:\n    job = Job()\n    job.needed += [last]\n    last = job\n", "needed"),
        ("for i in y:\n    job = Job()\n    job.needed.extend([last])\n    last = job\n", "needed"),
    ],
)
def test_objects_that_a_method_or_the_list_of_another_links(source: str, attribute: str) -> None:
    files = {"train.py": ast.parse(source)}
    found = [*wraps_of_classes(files), *links(files)]
    assert [item.attribute for item in found] == [attribute]


@pytest.mark.parametrize(
    "source",
    [
        FLUENT + "for i in y:\n    job = Job().after(root)\n    last = job\n",
        FLUENT + "job = Job().after(last)\nlast = job\n",
        FLUENT + "for i in y:\n    root.after(job)\n",
        FLUENT + "def after(x):\n    pass\nfor i in y:\n    job = Job().after(last)\n    last = job\n",
        FLUENT.replace("extend(jobs)", "extend(names(jobs))") + "for i in y:\n    j = Job().after(l)\n    l = j\n",
        ADDED + "for a, b in zip(jobs, others[1:]):\n    b.after(a)\n",
        ADDED + "for i in range(1, n):\n    jobs[i].after(others[i - 1])\n",
        ADDED + "for i in range(1, n):\n    jobs[i].after(jobs[0])\n",
        METHOD + "        print(jobs)\n        return self\nfor i in y:\n    j = Job().after(l)\n    l = j\n",
    ],
    ids=[
        "root",
        "once",
        "flat",
        "two of that name",
        "copies",
        "other list",
        "other items",
        "all first",
        "kept nowhere",
    ],
)
def test_methods_that_link_no_chain(source: str) -> None:
    files = {"train.py": ast.parse(source)}
    assert [*wraps_of_classes(files), *links(files)] == []


def test_chain_that_is_passed_on_and_listed_by_another_function() -> None:
    """`plan.add(after=[previous])`, which gives it to the method and keeps a list of all."""
    add = "class Plan:\n    def add(self, name, after=()):\n        job = Job().after(*after)\n"
    add += "        self.jobs.append(job)\n        return job\n"
    loop = "def make(plan):\n    last = plan.add('a')\n    for i in y:\n        last = plan.add('b', after=[last])\n"
    (found,) = wraps_of_classes({"train.py": ast.parse(FLUENT + add + loop)})
    assert (found.line, found.attribute, found.owner) == (15, "needed", "Job")
    assert found.listed == (10, "self.jobs.append(job)")
    flat = loop.replace("[last]", "[first]")
    assert wraps_of_classes({"train.py": ast.parse(FLUENT + add + flat)}) == []
