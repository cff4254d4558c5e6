"""The state of an optimizer that has another shape than its parameter, when step() fails by sizes."""

from __future__ import annotations

import pytest

from pytracer.record.torch.unfit_state import unfit_state

torch = pytest.importorskip("torch")


def raised(sizes: tuple[int, int], order: int, foreach: bool | None = None) -> list[dict[str, str]]:
    """What is recorded of a step() after a load from a model whose layers are listed in reverse, or not."""
    first = torch.nn.ModuleList(torch.nn.Linear(size, 1, bias=False) for size in sizes)
    net = torch.nn.ModuleList(torch.nn.Linear(size, 1, bias=False) for size in sizes[::order])
    old, new = torch.optim.Adam(first.parameters()), torch.optim.Adam(net.parameters(), foreach=foreach)
    for item in (*first, *net):
        item.weight.grad = torch.ones_like(item.weight)
    old.step()
    new.load_state_dict(old.state_dict())
    new.param_groups[0]["foreach"] = foreach
    try:
        new.step()
        torch.ones(2) + torch.ones(3)
    except RuntimeError as error:
        return unfit_state(error, error.__traceback__)
    raise AssertionError


@pytest.mark.parametrize("foreach", [False, True])
def test_state_of_another_parameter_is_recorded_with_both_shapes(foreach: bool) -> None:
    """With the name by which the program's frames reach the parameter, and how many do not fit."""
    told = raised((2, 3), -1, foreach)
    assert told == [{"name": "unfit state", "value": "exp_avg [1, 2] of net.0.weight [1, 3], 2 of 2"}]


def test_sizes_that_differ_elsewhere_record_nothing() -> None:
    """The look-alike: the states fit, and the program's own line fails."""
    assert raised((2, 3), 1) == []


def test_gradient_of_another_shape_is_no_state() -> None:
    """A parameter that was cut has a gradient, and no state, of the size before."""
    weight = torch.nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3)
    weight.data = torch.ones(2)
    with pytest.raises(RuntimeError) as caught:
        torch.optim.SGD([weight], lr=0.1).step()
    assert unfit_state(caught.value, caught.value.__traceback__) == []


def test_state_that_is_smaller_by_design_is_not_unfit() -> None:
    """Of Adafactor, whose gradient is of another size here."""
    weight = torch.nn.Parameter(torch.ones(3, 4))
    optimizer = torch.optim.Adafactor([weight])
    weight.grad = torch.ones(3, 4)
    optimizer.step()
    assert {tuple(item.shape) for item in optimizer.state[weight].values() if item.dim()} == {(3, 1), (1, 4)}
    weight.grad = None
    weight.data = torch.ones(3, 5)
    weight.grad = torch.ones(3, 5)
    with pytest.raises(RuntimeError, match="size of tensor a") as caught:
        optimizer.step()
    assert unfit_state(caught.value, caught.value.__traceback__) == []
