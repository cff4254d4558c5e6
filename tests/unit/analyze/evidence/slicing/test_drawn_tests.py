"""Conditions that go by a number drawn at random, and what seeds it."""

from __future__ import annotations

import ast
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.slicing.drawn_tests import draw_behind, drawn_words, seed_words
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.syntax.draws import Draw
from pytracer.report.job import PythonFrame

SNAPSHOT: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**13)
HEAD = "import random, torch\nimport numpy as np\n"


def draw(folder: Path, source: str) -> Draw | None:
    """Of the first `if` of a program."""
    (folder / "net.py").write_text(HEAD + source)
    tree = ast.parse(HEAD + source)
    decides = next(item for item in ast.walk(tree) if isinstance(item, ast.If))
    slice_ = Slice(SNAPSHOT, [PythonFrame(file=str(folder / "net.py"), line=decides.lineno)])
    spot = slice_.spot(0)
    assert spot is not None
    return draw_behind(slice_, decides, spot)


@pytest.mark.parametrize(
    ("source", "drawn"),
    [
        ("def f(p):\n    if torch.rand(()).item() < p:\n        g()\n", ("`torch.rand(())` of line 4", "torch")),
        (
            "def f(p):\n    keep = random.random()\n    if keep < p:\n        g()\n",
            ("`random.random()` of line 4", "random"),
        ),
        ("def f(p, n):\n    u = np.random.uniform(size=n)\n    if u[2] < p:\n        g()\n", ("of line 4", "numpy")),
        (
            "def f(p):\n    if skips(p):\n        g()\ndef skips(p):\n    return torch.rand(1) < p\n",
            ("of line 7", "torch"),
        ),
        ("def f(p, gen):\n    if torch.rand((), generator=gen) < p:\n        g()\n", ("of line 4", None)),
        (
            "def f(p):\n    u = torch.empty(3).uniform_()\n    if u[0] < p:\n        g()\n",
            ("uniform_()` of line 4", "torch"),
        ),
        ("def f(p):\n    if np.random.permutation(8)[0] < p:\n        g()\n", ("of line 4", "numpy")),
        ("def f(p, rng):\n    if rng.integers(8) < p:\n        g()\n", ("`rng.integers(8)` of line 4", None)),
    ],
)
def test_call_that_draws_is_found(source: str, drawn: tuple[str, str | None], tmp_path: Path) -> None:
    """In the condition, in a variable, in a function of the program."""
    found = draw(tmp_path, source)
    assert found is not None
    assert drawn_words(found, "net.py", "net.py").endswith(drawn[0])
    assert found.library == drawn[1]


@pytest.mark.parametrize(
    "test",
    ["x.mean() > 0", "self.random_order", "len(batch) < sample", "self.training and step % 2", "x.exponential() > 1"],
)
def test_other_conditions_draw_nothing(test: str, tmp_path: Path) -> None:
    """The look-alikes."""
    assert draw(tmp_path, f"def f(self, x, batch, sample, step):\n    if {test}:\n        g()\n") is None


TORCH_DRAW = Draw(ast.Call(ast.Name("rand"), [], []), "torch")


@pytest.mark.parametrize(
    ("source", "library", "said"),
    [
        (
            "torch.manual_seed(0)\ntorch.manual_seed(7 + rank)\n",
            "torch",
            "; line 4 (`torch.manual_seed(7 + rank)`) seeds by the rank",
        ),
        (
            "seed = 7 + dist.get_rank()\nseed_everything(seed)\n",
            "numpy",
            "; line 4 (`seed_everything(seed)`) seeds by the rank",
        ),
        ("torch.manual_seed(7 + rank)\ntorch.manual_seed(0)\n", "torch", ""),
        ("random.seed(rank)\n", "torch", ""),
        ("torch.manual_seed(0)\n", "torch", ""),
        ("x = 1\n", "torch", ""),
        ("x = 1\n", "random", "; no line of the program seeds `random`"),
        ("torch.manual_seed(rank)\n", None, ""),
    ],
)
def test_line_that_seeds_by_the_rank_is_told(source: str, library: str | None, said: str) -> None:
    """Of that generator alone, if it is not seeded again; torch begins with one seed in each process."""
    files = {"net.py": ast.parse(HEAD + source)}
    assert seed_words(files, Draw(TORCH_DRAW.call, library), "net.py") == said
