"""The parameter that an error about an in-place operation is meant by, of its shape and version, and its optimizer."""

from __future__ import annotations

import pytest

from pytracer.record.torch.changed_parameter import changed_parameter

torch = pytest.importorskip("torch")
MESSAGE = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: "
    "[torch.FloatTensor {}], which is output 0 of {}, is at version {}; expected version 0 instead."
)


def raised(shape: str, by: str, version: int, twice: bool = False) -> list[dict[str, str]]:
    """What is recorded of a program's frame with a layer [1, 4] at version 2: its initialization and one step."""
    layer = torch.nn.Linear(4, 1, bias=False)
    other = torch.nn.Linear(4, 1, bias=False) if twice else None
    sgd = torch.optim.SGD([*layer.parameters(), *(other.parameters() if other is not None else ())], lr=0.1)
    for item in (layer, other):
        if item is not None:
            item.weight.grad = torch.ones(1, 4)
    sgd.step()
    try:
        raise RuntimeError(MESSAGE.format(shape, by, version))
    except RuntimeError as error:
        return changed_parameter(error, error.__traceback__)


def test_weight_of_a_linear_layer_is_saved_transposed() -> None:
    """As [4, 1], an output of AsStrided."""
    assert raised("[4, 1]", "AsStridedBackward0", 2) == [
        {"name": "changed parameter", "value": "layer.weight [1, 4]"},
        {"name": "its optimizer", "value": "sgd"},
    ]


@pytest.mark.parametrize(
    ("shape", "by", "version", "twice"),
    [
        ("[4, 1]", "AsStridedBackward0", 1, False),
        ("[1, 4]", "AsStridedBackward0", 2, False),
        ("[1, 4]", "AddBackward0", 2, False),
    ],
)
def test_other_tensors_are_not_taken_for_it(shape: str, by: str, version: int, twice: bool) -> None:
    """The look-alikes: another version, shape or operation."""
    assert raised(shape, by, version, twice) == []


def test_several_with_that_shape_and_version_are_all_named() -> None:
    """It is one of them: which optimizer has it is left open."""
    told = raised("[4, 1]", "TBackward0", 2, twice=True)
    assert told == [{"name": "changed parameters", "value": "layer.weight,other.weight [1, 4]"}]


def test_leaf_is_no_weight_of_a_linear_layer() -> None:
    """Of that shape and version by chance: autograd saves it transposed alone."""
    layer = torch.nn.Linear(4, 1)
    text = MESSAGE.replace(", which is output 0 of {},", "").format(list(layer.weight.shape), layer.weight._version)
    try:
        raise RuntimeError(text)
    except RuntimeError as error:
        assert changed_parameter(error, error.__traceback__) == []
