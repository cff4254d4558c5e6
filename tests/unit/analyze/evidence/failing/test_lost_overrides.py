"""Python objects that C++ was given, and that nothing in Python keeps: pybind11 finds no override of theirs."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import explained
from pytracer.report.job import ExceptionReport, PythonFrame

MESSAGE = 'Tried to call pure virtual function "Policy::pick"'
FIELDS = """import sim
class Greedy(sim.Policy):
    def __init__(self, rate):
        super().__init__()
        self.rate = rate
    def pick(self, x):
        return self.rate * x
"""
TRAIN = """{before}
def train(engine):
    return engine.run(3)
def main():
    engine = sim.Engine()
    {given}
    train(engine)
main()
"""
PARTED = """import native
def kinds(base):
    class Spring(base):
        def force(self, x):
            return -x
    class Well(base):
        def force(self, x):
            return x
    return {"spring": Spring, "well": Well}
class Stages:
    def __init__(self, world, kinds):
        self.world, self.kinds = world, kinds
    def start(self, kind):
        self.world.field = self.kinds[kind]()
def train(world):
    return world.step(3)
def main():
    world = native.World()
    first = kinds(native.Field)["spring"]()
    world.field = first
    stages = Stages(world, kinds(native.Field))
    stages.start("well")
    train(world)
main()
"""


def told(folder: Path, files: dict[str, str] | str, line: str = "return engine.run(3)", message: str = MESSAGE) -> Any:
    """The explanation. `line` fails, in a function that main() called, which the last line of the first file calls."""
    files = {"train.py": files} if isinstance(files, str) else files
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    file, source = str(folder / "train.py"), files["train.py"].splitlines()
    at = next(n for n, text in enumerate(source, 1) if text.strip() == line)
    called = next(n for n, text in enumerate(source, 1) if text.strip().startswith("train("))
    snapshot: Any = SimpleNamespace(
        argv=("python", file), created_wall_ns=time.time_ns() + 10**9, recorded=lambda kind: (), collectives=()
    )
    frames = [
        PythonFrame(function="train", file=file, line=at),
        PythonFrame(function="main", file=file, line=called),
        PythonFrame(function="<module>", file=file, line=len(source)),
    ]
    return explained(snapshot, ExceptionReport(type="RuntimeError", message=message), frames)


def said(folder: Path, given: str, fields: str = FIELDS, before: str = "", line: str = "return engine.run(3)") -> str:
    found = told(folder, fields + TRAIN.format(given=given, before=before), line)
    return f"{found.subject}; {found.words}"


@pytest.mark.parametrize(
    "given", ["engine.policy = Greedy(0.5)", "engine.set_policy(Greedy(0.5))", "engine.policies = [Greedy(0.5)]"]
)
def test_temporary_that_a_native_object_was_given_is_named(given: str, tmp_path: Path) -> None:
    """By a property, a method, or in a list: C++ keeps its own half."""
    words = said(tmp_path, given)
    assert f"nothing in Python keeps the object that line 13 gives to C++ (`{given}`)" in words
    assert "likely" in words and "pick()" in words
    assert "Keep the object of line 13 in Python for as long as C++ uses it" in words
    assert "py::keep_alive<1, 2>()" in words and "trampoline_self_life_support" in words
    assert "`Greedy` (line 2) has pick()" in words


def test_temporary_of_the_constructor_is_named(tmp_path: Path) -> None:
    """The native object is made with it."""
    source = FIELDS + TRAIN.format(given="engine = sim.Engine(Greedy(0.5))", before="")
    assert "that line 13 gives to C++" in (told(tmp_path, source).subject or "")


def test_class_is_followed_through_tables_attributes_and_parameters(tmp_path: Path) -> None:
    """The reported case: the base class is a parameter, the class an item of a dict that an attribute has."""
    found = told(tmp_path, PARTED, "return world.step(3)", 'Tried to call pure virtual function "Field::force"')
    assert "line 14 gives to C++ (`self.world.field = self.kinds[kind]()`)" in found.subject
    assert "line 20" not in found.subject + found.words  # `first` is a variable of main(), which is running
    assert "`Spring` (line 3) and `Well` (line 6) have force()" in found.words


def test_variable_of_a_function_that_returned_kept_nothing(tmp_path: Path) -> None:
    """What held it ended with the function."""
    before = "def choose(engine):\n    policy = Greedy(1.0)\n    policy.rate = 2.0\n    engine.policy = policy\n"
    words = said(tmp_path, "choose(engine)", before=before)
    assert "nothing in Python keeps `policy` of choose(), which has returned, and which line 11 gives to C++" in words


def test_temporary_that_a_function_passes_on_is_named_by_its_caller(tmp_path: Path) -> None:
    """The parameter ends with the function."""
    before = "def choose(engine, policy):\n    engine.policy = policy\n"
    words = said(tmp_path, "choose(engine, Greedy(1.0))", before=before)
    assert "nothing in Python keeps the object that line 15 gives to C++ (`choose(engine, Greedy(1.0))`)" in words


def test_classes_of_another_file_and_of_a_name_that_c_has_otherwise_are_found(tmp_path: Path) -> None:
    """The message has the name in C++, `IPolicy`; the file has its own name for the base."""
    other = "from sim import Policy as Base\nclass Greedy(Base):\n    def pick(self, x):\n        return x\n"
    source = "import sim\nfrom policies import Greedy\n" + TRAIN.format(given="engine.policy = Greedy()", before="")
    message = 'Tried to call pure virtual function "core::IPolicy::pick"'
    found = told(tmp_path, {"train.py": source, "policies.py": other}, message=message)
    assert "line 8 gives to C++ (`engine.policy = Greedy()`)" in found.subject
    assert "`Greedy` (policies.py:2) has pick()" in found.words


@pytest.mark.parametrize(
    ("given", "before"),
    [
        ("policy = Greedy(0.5); engine.policy = policy", ""),  # a variable of main(), which is running
        ("engine.policy = KEPT", "KEPT = Greedy(1.0)\n"),  # one of the module
        ("choose(engine)", "ALL = []\ndef choose(e):\n    p = Greedy(1)\n    ALL.append(p)\n    e.policy = p\n"),
        ("choose(engine)", "def choose(engine):\n    global P\n    P = Greedy(1)\n    engine.policy = P\n"),
        ("a = Agent(engine)", "class Agent:\n    def __init__(self, e):\n        self.p = e.policy = Greedy(1)\n"),
        ("A(engine)", "class A:\n  def __init__(self, e):\n    e.policy = p = Greedy(1)\n    self.p = p\n"),
        ("p = choose(engine)", "def choose(engine):\n    p = Greedy(1)\n    engine.policy = p\n    return p\n"),
        ("agent = Agent(); agent.policy = Greedy(1.0)", "class Agent:\n    pass\n"),  # no native object
        ("note(Greedy(1.0))", "def note(policy):\n    KEPT.append(policy)\nKEPT = []\n"),
        ("engine.policy = sim.Greedy()", ""),  # a class of C++
        ("print(Greedy(1.0))", ""),
    ],
)  # fmt: skip
def test_object_that_is_kept_is_not_laid_to_it(given: str, before: str, tmp_path: Path) -> None:
    """The look-alikes: something holds the object, or no native object was given it."""
    assert "nothing in Python keeps" not in said(tmp_path, given, before=before)


def test_constructor_that_is_called_by_its_class_gives_nothing_away(tmp_path: Path) -> None:
    """`sim.Policy.__init__(self)` is the other way to write super().__init__()."""
    fields = FIELDS.replace("super().__init__()", "sim.Policy.__init__(self)")
    assert "nothing in Python keeps the object" in said(tmp_path, "engine.policy = Greedy(0.5)", fields)


def test_object_that_registers_itself_is_kept(tmp_path: Path) -> None:
    """Its own constructor puts it into a list."""
    fields = FIELDS.replace("self.rate = rate", "ALL.append(self)")
    assert "nothing in Python keeps" not in said(tmp_path, "engine.policy = Greedy(0.5)", fields)


@pytest.mark.parametrize(
    "fields",
    [
        FIELDS.replace("def pick", "def choose"),  # what the message says first: there is none
        FIELDS + "class Lazy(sim.Policy):\n    pass\n",  # it may have been this one
        FIELDS + "DEFAULT = sim.Policy()\n",  # or the class of C++ itself
        FIELDS.replace("(sim.Policy)", ""),  # no class of C++'s at all
    ],
)
def test_class_without_the_function_is_another_mistake(fields: str, tmp_path: Path) -> None:
    """A function that is missing or misspelt has the same message, whatever was kept."""
    assert "nothing in Python keeps" not in said(tmp_path, "engine.policy = Greedy(0.5)", fields)


def test_other_message_is_not_laid_to_it(tmp_path: Path) -> None:
    """Only pybind11's own."""
    source = FIELDS + TRAIN.format(given="engine.policy = Greedy(0.5)", before="")
    found = told(tmp_path, source, message="the policy was not set")
    assert "nothing in Python keeps" not in f"{found.subject}{found.words}"


def test_base_class_of_the_program_between_may_lack_the_function(tmp_path: Path) -> None:
    """It is never made itself."""
    fields = FIELDS.replace("Greedy(sim.Policy)", "Greedy(Base)").replace(
        "import sim\n", "import sim\nclass Base(sim.Policy):\n    pass\n"
    )
    assert "nothing in Python keeps the object" in said(tmp_path, "engine.policy = Greedy(0.5)", fields)


@pytest.mark.parametrize("call", ["super().pick(3)", "sim.Policy.pick(self, 3)", "Base.pick(self, 3)"])
def test_override_that_calls_the_function_of_the_base_class_was_found(call: str, tmp_path: Path) -> None:
    """The message is the same."""
    fields = FIELDS.replace("        return self.rate * x", f"        return {call}")
    words = said(tmp_path, "engine.policy = Greedy(0.5)", fields, line=f"return {call}")
    assert "nothing in Python keeps" not in words


@pytest.mark.parametrize("how", ["py::keep_alive<1, 2>()", "py::smart_holder", "py::trampoline_self_life_support"])
def test_binding_that_keeps_the_python_object_did_not_lose_it(how: str, tmp_path: Path) -> None:
    """In a source of its own, or as text of the program."""
    assert "nothing in Python keeps" not in said(tmp_path, "engine.policy = Greedy(0.5)", before=f'CPP = "{how}"')
    (tmp_path / "sim.cpp").write_text(f"c.def({how});\n", encoding="utf-8")
    assert "nothing in Python keeps" not in said(tmp_path, "engine.policy = Greedy(0.5)")


def test_bases_whose_names_go_in_a_circle_are_survived(tmp_path: Path) -> None:
    """Two files have classes of the same names."""
    fields = FIELDS + "class A(B, sim.Policy):\n    pass\nclass B(A):\n    pass\n"
    assert "nothing in Python keeps" not in said(tmp_path, "engine.policy = A()", fields)
