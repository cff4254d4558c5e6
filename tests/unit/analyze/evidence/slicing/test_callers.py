"""Which calls are of a function of the program."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.slicing.by_rank import values_of
from pytracer.analyze.evidence.slicing.callers import only_call, only_function
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.scopes import scope_of

TRAIN = "def train(model, rows):\n    step(model)\n"


def lines(name: str, **sources: str) -> list[str] | None:
    """Of the only call, with its file."""
    files = {f"/home/me/run/{file}.py": ast.parse(source) for file, source in sources.items()}
    defined = only_function(files, name)
    assert defined is not None
    found = only_call(files, defined[1])
    return [found.file.rpartition("/")[2], ast.unparse(found.call)] if found is not None else None


@pytest.mark.parametrize(
    "main",
    [
        "from work import train\nmodel.train()\ntrain(model, rows)",
        "from work import train\nfrom peft import train as fit\nfit.train()\ntrain(model, rows)",
        "import torch\nfrom work import train\ntorch.jit.train()\ntrain(model, rows)",
    ],
)
def test_methods_and_libraries_have_functions_of_that_name(main: str) -> None:
    assert lines("train", work=TRAIN, main=main) == ["main.py", "train(model, rows)"]


@pytest.mark.parametrize(
    "main",
    [
        "import work\nwork.train(model, rows)",
        "import run.work as work\nwork.train(model, rows)",  # of a package that is no file of the program
        "from work import train\nclass Loop:\n    go = 1\nThread(target=train, args=(model, rows)).start()",
    ],
)
def test_call_by_its_module_or_a_thread(main: str) -> None:
    assert lines("train", work=TRAIN, main=main) is not None


@pytest.mark.parametrize(
    "main",
    [
        "from work import train\ntrain(model, rows)\ntrain(other, rows)",
        "from work import train\nloop.train = train\nloop.train(other, rows)\ntrain(model, rows)",
        "from work import train\nPool().apply(train, (model, rows))\ntrain(model, rows)",
    ],
)
def test_several_calls_are_not_the_only_one(main: str) -> None:
    """The look-alikes: an object keeps the function, or a pool is given it."""
    assert lines("train", work=TRAIN, main=main) is None


@pytest.mark.parametrize(
    ("main", "known"),
    [
        ("from work import train\ntrain(model, rows)\nFarm(2, train).run()", False),
        ("from work import train\ntrain(model, rows)\nFarm(2, work=train).run()", False),
        ("from work import train\ntrain(model, rows)\nFarm(2, train=model).run()", True),
        ("from work import train\nThread(target=train, args=(model, rows)).start()", True),
    ],
)
def test_function_that_is_handed_on_may_be_called_elsewhere(main: str, known: bool) -> None:
    """By whoever has it; a thread's own call is known."""
    assert (lines("train", work=TRAIN, main=main) is not None) == known


def test_method_is_called_through_an_object() -> None:
    """Where it is not known whose, all such calls count."""
    work = "class Loop:\n    def train(self, rows): ...\n"
    assert lines("train", work=work, main="loop.train(rows)") is not None
    assert lines("train", work=work, main="loop.train(rows)\nmodel.train()") is None


def test_arguments_of_super_are_not_those_of_the_method_itself() -> None:
    """`super().__init__(3)` calls the constructor of another class."""
    source = (
        "class Net(Base):\n    def __init__(self, n):\n        super().__init__(3)\n        step(n)\ndef step(n): ...\n"
    )
    tree = ast.parse(source)
    assert [*values_of("n", Spot(None, tree, scope_of(tree, 4), 4))] == []
    at = Spot(None, tree, tree.body[1], 5)  # type: ignore[arg-type]
    assert [(ast.unparse(value), spot.line) for value, spot in values_of("n", at)] == [("n", 4)]
