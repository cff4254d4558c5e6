"""Which class a variable of the program calls, and which forward() that runs."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.preconditions.modules import construction, forward_of, module_class

NET = """class Net(nn.Module):
    def __init__(self):
        self.loss = nn.CTCLoss()

    def forward(self, x):
        return self.loss(x)


"""


def called(source: str, name: str) -> ast.expr:
    calls = (item.func for item in ast.walk(ast.parse(source)) if isinstance(item, ast.Call))
    return next(item for item in calls if ast.unparse(item) == name)


@pytest.mark.parametrize(
    ("source", "name", "found"),
    [
        ("criterion = nn.CTCLoss(blank=0)\nloss = criterion(a, b)\n", "criterion", "CTCLoss"),
        ("criterion = torch.nn.CTCLoss().to(device)\nloss = criterion(a, b)\n", "criterion", "CTCLoss"),
        (NET, "self.loss", "CTCLoss"),
        ("loss = criterion(a, b)\n", "criterion", None),
        ("criterion = nn.CTCLoss()\ncriterion = other\nloss = criterion(a, b)\n", "criterion", None),
        ("criterion = nn.CTCLoss()\ncriterion = Mine()\nloss = criterion(a, b)\n", "criterion", None),
    ],
)
def test_class_of_a_variable_is_what_the_file_makes_it(source: str, name: str, found: str | None) -> None:
    assert module_class(ast.parse(source), called(source, name)) == found


@pytest.mark.parametrize(
    ("main", "known"),
    [
        ("model = Net()\nmodel(x)\n", True),
        ("model = DDP(Net())\nmodel(x)\n", False),
        ("model = Net()\nmodel = DDP(model)\nmodel(x)\n", False),
    ],
)
def test_forward_is_that_of_the_class_alone(main: str, known: bool) -> None:
    tree = ast.parse(f"{NET}{main}")
    call = next(item for item in ast.walk(tree) if isinstance(item, ast.Call) and ast.unparse(item) == "model(x)")
    found = forward_of(tree, call)
    assert (found is not None) == known


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("bag = nn.EmbeddingBag(9, 4, include_last_offset=True)\nbag(a, b)\n", ["include_last_offset"]),
        ("bag = nn.EmbeddingBag(9, 4)\nbag = nn.EmbeddingBag(9, 4, mode='max')\nbag(a, b)\n", None),
        ("bag(a, b)\n", None),
    ],
    ids=["made once", "made at two places", "made elsewhere"],
)
def test_construction_of_a_module_is_known_where_there_is_one(source: str, words: list[str] | None) -> None:
    made = construction(ast.parse(source), called(source, "bag"))
    assert ([word.arg for word in made.keywords] if made is not None else None) == words
