"""Functions that may run elsewhere than in the main program, and objects that the program alone has."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.syntax.apart import functions_apart
from pytracer.analyze.evidence.syntax.known_uses import is_known_by

SOURCE = """\
class Game:
    def step(self): pass
    def __len__(self): return 1
class Learner:
    def step(self): self.take()
    def take(self): pass
class Worker(Thread):
    def run(self): helper()
    def stop(self): pass
class Rows(Dataset):
    def __getitem__(self, i): pass
def helper(): pass
def play(game, out):
    game = Game()
    len(game), game.step()
def alone(): pass
learner = Learner()
learner.step()
Process(target=play, args=(1, games))
{}
"""


def apart(more: str) -> set[str]:
    tree = ast.parse(SOURCE.format(more))
    owners = {id(part): node.name for node in tree.body if isinstance(node, ast.ClassDef) for part in node.body}
    return {f"{owners.get(id(item), '')}.{item.name}".lstrip(".") for item in functions_apart(tree)}


def test_what_is_started_and_what_that_calls_may_run_apart() -> None:
    """Not the method of the same name of a class that it has no object of."""
    assert apart("") == {"Game.step", "Game.__len__", "Worker.run", "helper", "Rows.__getitem__", "play"}


@pytest.mark.parametrize(
    "more",
    [
        "submit(learner.step)",
        "submit(lambda: learner.step())",
        "def watch(it): it.step()\nThread(target=watch, args=(learner,))",
        "def watch(it): it.step()\nThread(target=watch, args=(Learner(),))",
        "def watch(): Learner().step()\nThread(target=watch)",
        "def watch(all): all[0].step()\nThread(target=watch, args=([Learner()],))",
    ],
)
def test_method_may_run_apart_where_an_object_of_its_class_goes(more: str) -> None:
    assert {"Learner.step", "Learner.take"} <= apart(more)


@pytest.mark.parametrize("more", ["Learner().step()", "with Learner() as it: it.step()", "other = Learner()"])
def test_objects_that_stay_keep_their_methods(more: str) -> None:
    assert "Learner.step" not in apart(more)


@pytest.mark.parametrize(
    ("use", "known"),
    [
        ("games.put(1)", True),
        ("if games is None: pass", True),
        ("play(games, 1)", True),
        ("play(b=1, a=games)", True),
        ("Process(target=play, args=(games, 1))", True),
        ("spawn(play, (1, games))", False),
        ("spawn(second, (games,))", True),
        ("Keeper(games)", True),
        ("print(games)", True),
        ("self.games = games", True),
        ("_, games = 1, games", True),
        ("other = games", False),
        ("queues = [games]", False),
        ("listen(games)", False),
        ("play(1, games)", False),  # by a name that is none of its own
        ("play(1, 2, games)", False),
        ("play(*rest, games)", False),
        ("Process(target=unknown, args=(games,))", False),
        ("Bare(games)", False),
        ("yield_(x=(games, 1))", False),
        ("def f(): return games", False),
    ],
)
def test_object_is_known_by_the_program_unless_it_goes_elsewhere(use: str, known: bool) -> None:
    own = "def play(a, b, *c): pass\ndef second(i, a): pass\nclass Bare: pass\n"
    source = f"{own}class Keeper:\n    def __init__(self, x): pass\n{use}\n"
    assert is_known_by(ast.parse(source), frozenset({"games", "a", "x"})) == known
