"""Variables that hold a function of the program's own library."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.own_code import loaded_functions as module
from pytracer.analyze.evidence.own_code.own_libraries import _loads_own

LAYER = """def load_nms(path):
    fn = ctypes.CDLL(path).nms
    fn.restype = None
    return fn

class Layer:
    def __init__(self):
        self.run = load_nms(PATH)
    def __call__(self, keep):
        self.run(keep.ctypes.data)
"""


def called(source: str, modules: tuple[str, ...] = ()) -> str | None:
    """By the last line."""
    tree = ast.parse(source)
    returned = module.functions_returned(tree, _loads_own)
    loaded = module.loaded_functions(tree, _loads_own, modules, returned)
    line = len(source.splitlines())
    calls = [item for item in ast.walk(tree) if isinstance(item, ast.Call) and item.lineno == line]
    return module.called_function(tree, calls[0], loaded)


def test_attribute_that_a_loader_gave_its_function_is_called_by_that_name() -> None:
    assert called(LAYER) == "nms"


@pytest.mark.parametrize(
    "source",
    [
        "nms = ctypes.CDLL(path).nms\nnms(keep.data_ptr())",
        "run = lib.nms\ndef select(keep):\n    run(keep.data_ptr())",
        "def load():\n    lib = ctypes.CDLL(PATH)\n    return lib.nms\nrun = load()\nrun(keep.data_ptr())",
    ],
    ids=["of a new library", "of a known library", "of a loader's library"],
)
def test_variables_of_the_module_are_called_by_its_functions(source: str) -> None:
    assert called(source, ("lib",)) == "nms"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("class Layer:", "class Loader:"),
        ("ctypes.CDLL(path)", "ctypes.CDLL('libc.so.6')"),
        ("ctypes.CDLL(path)", "make(path)"),
        ("    return fn", "    fn = wrap(fn)\n    return fn"),
        ("    return fn", "    if path is None:\n        return print\n    return fn"),
        ("    def __call__", "        self.run = ctypes.CDLL(OTHER).other\n    def __call__"),
    ],
    ids=["another class", "of the system", "no library", "wrapped", "of two", "set twice"],
)
def test_variables_that_may_hold_something_else_are_none(old: str, new: str) -> None:
    source = LAYER.replace(old, new)
    if old == "class Layer:":
        source = source.replace("    def __call__", "class Layer:\n    def __call__")
    assert called(source) is None


def test_parameter_of_the_same_name_is_another_function() -> None:
    assert called("fn = lib.nms\ndef apply(fn, x):\n    return fn(x)", ("lib",)) is None


@pytest.mark.parametrize(
    "source",
    [
        "nms = lib.nms\nif cuda:\n    nms = torchvision.ops.nms\nnms(keep)",
        "nms = lib.nms\ndef use():\n    global nms\n    nms = other\nnms(keep)",
        "nms = lib.nms\nif cuda:\n    def nms(keep): ...\nnms(keep)",
        "def run(keep):\n    nms = lib.nms\n    if cuda:\n        nms = other\n    nms(keep)",
        LAYER.replace("    def __call__", "        if cuda: self.run = torchvision.ops.nms\n    def __call__"),
    ],
    ids=["of the module", "by global", "a function", "of a function", "of a class"],
)
def test_variable_that_two_lines_bind_is_none(source: str) -> None:
    assert called(source, ("lib",)) is None
