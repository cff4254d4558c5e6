"""Numbers that a program draws at random, and the lines that seed its generators."""

from __future__ import annotations

import ast
from collections.abc import Mapping

import msgspec

from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.names import names_of
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import reads_rank
from pytracer.analyze.evidence.syntax.scopes import scope_of

_LIBRARIES = ("torch", "numpy", "random")
# Whoever has a function of that name, it draws.
_OF_ALL = frozenset(
    {"rand", "randn", "randint", "rand_like", "randn_like", "randint_like", "random", "random_sample", "uniform"}
    | {"bernoulli", "binomial", "integers", "standard_normal"}
)
# In torch, NumPy, `random` and their generators; elsewhere it may be anything.
_OF_LIBRARIES = frozenset(
    {
        "choice",
        "choices",
        "randrange",
        "getrandbits",
        "sample",
        "normal",
        "multinomial",
        "randperm",
        "permutation",
        "gauss",
    }
    | {"poisson", "exponential", "geometric"}
)
_IN_PLACE = frozenset({"uniform_", "bernoulli_", "random_", "normal_", "exponential_", "geometric_"})  # of a tensor
DRAWS = _OF_ALL | _OF_LIBRARIES | _IN_PLACE


class Draw(msgspec.Struct, frozen=True):
    """`library`: whose global generator it is, `torch`, `numpy` or `random`; None of a generator of the program's."""

    call: ast.Call
    library: str | None


class Seed(msgspec.Struct, frozen=True):
    """A line that seeds. `by_rank`: with the rank in it."""

    file: str
    call: ast.Call
    by_rank: bool


def draw_in(tree: ast.Module, node: ast.AST) -> Draw | None:
    """The first call inside that draws; `tree`: of its file."""
    for call in (item for item in nodes_of(node) if isinstance(item, ast.Call)):
        name = called_name(call)
        if name not in DRAWS:
            continue
        library = library_drawn_from(tree, call)
        if name in _OF_LIBRARIES and library is None:
            continue
        own = any(item.arg == "generator" for item in call.keywords)
        return Draw(call, None if own else library)
    return None


def seeds(files: Mapping[str, ast.Module], library: str) -> list[Seed]:
    """Of the generator of a library, by the library itself or by a function that may seed it."""
    return [
        Seed(file, call, goes_by_rank(tree, call))
        for file, tree in files.items()
        for call in nodes_of(tree)
        if isinstance(call, ast.Call) and "seed" in (called_name(call) or "").lower()
        if call.args and library_of(tree, call) in (library, None)
        if library == "torch" or not (called_name(call) or "").startswith("manual_seed")
    ]


def seeded_by_rank(files: Mapping[str, ast.Module], library: str) -> Seed | None:
    """The line by which a library's generator differs on each rank; None where a line below seeds all alike.

    A function of the program that seeds is its own lines, and not the line that calls it.
    """
    found = seeds(files, library)
    seeding = {getattr(scope_of(files[item.file], item.call.lineno), "name", None) for item in found}
    own = [item for item in found if called_name(item.call) not in seeding]
    for item in own:
        below = (other for other in own if other.file == item.file and other.call.lineno > item.call.lineno)
        if item.by_rank and all(other.by_rank for other in below):
            return item
    return None


def is_unseeded(files: Mapping[str, ast.Module], library: str) -> bool:
    """Whether each process begins with a seed of its own, which no line sets: torch has one seed in all of them.

    A function of the program that seeds other libraries (`seed_everything(7)`) is its own lines.
    """
    if not files or library not in ("random", "numpy"):
        return False
    return not [item for item in seeds(files, library) if not _calls_own(files, item)]


def _calls_own(files: Mapping[str, ast.Module], seed: Seed) -> bool:
    name = called_name(seed.call)
    own = (item for tree in files.values() for item in nodes_of(tree) if isinstance(item, ast.FunctionDef))
    return isinstance(seed.call.func, ast.Name) and any(item.name == name for item in own)


def library_of(tree: ast.Module, call: ast.Call) -> str | None:
    """Whose function is called: `torch`, `numpy` or `random`."""
    module = (imported_as(tree, call.func) or "").partition(".")[0]
    return module if module in _LIBRARIES else None


def library_drawn_from(tree: ast.Module, call: ast.Call) -> str | None:
    """Of a call that draws: also `torch` of a tensor's method."""
    return "torch" if called_name(call) in _IN_PLACE else library_of(tree, call)


def goes_by_rank(tree: ast.Module, call: ast.Call) -> bool:
    """Also by a variable that a line above binds: `seed = 1234 + rank`."""
    scope, values = scope_of(tree, call.lineno), passed_values(call)
    bound = [
        value
        for name in (name for item in values for name in names_of(item))
        for line, value in lines_that_bind(scope, name)
        if value is not None and line < call.lineno
    ]
    return any(reads_rank(item) for item in (*values, *bound))
