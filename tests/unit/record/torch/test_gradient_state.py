"""Whether gradients were switched off at an exception, and what had a graph."""

from __future__ import annotations

import pytest

from pytracer.record.torch.gradient_state import gradient_state

torch = pytest.importorskip("torch")


def _state(off: bool) -> dict[str, str]:
    model = torch.nn.Linear(2, 1)
    model.weight.requires_grad_(False)
    loss = model(torch.ones(1, 2)).sum().detach()
    try:
        torch.set_grad_enabled(not off)
        loss.backward()
    except RuntimeError as error:
        return {item["name"]: item["value"] for item in gradient_state(error, error.__traceback__)}
    finally:
        torch.set_grad_enabled(True)
    raise AssertionError


def test_gradients_that_are_off_are_recorded() -> None:
    """And of a missing graph, which tensors and parameters require a gradient."""
    held = {"loss.requires_grad": "False", "parameters of model": "1 of 2 require a gradient"}
    assert _state(off=False) == held
    assert _state(off=True) == {"torch.is_grad_enabled()": "False", **held}


def test_other_exceptions_have_no_graphs() -> None:
    """Only the switch counts for them, while it is off."""
    loss = torch.ones(1)
    try:
        raise ValueError(loss)
    except ValueError as error:
        assert gradient_state(error, error.__traceback__) == []
