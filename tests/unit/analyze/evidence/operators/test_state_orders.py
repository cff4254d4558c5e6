"""States in another order than the parameters are told from those of another model by all of their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.operators.state_orders import are_misplaced, state_order

PARAMETERS = [("conv.weight", 3456), ("conv.bias", 128), ("fc.weight", 8192), ("fc.bias", 24)]
BY_RANK = ["conv.weight", "fc.weight", "conv.bias", "fc.bias"]


def view_of(loaded: Sequence[str], sizes: Sequence[int], *, model: str = "Net", parameters: Any = PARAMETERS) -> Any:
    """`loaded`: the parameters in the optimizer's order, with the sizes of what was loaded for them."""

    def item(name: str, role: str, nbytes: int, epoch: int) -> Any:
        return SimpleNamespace(name=name, role=role, base=epoch, nbytes=nbytes, epoch=epoch)

    named = [
        item(f"parameter {name} of {model}", "parameter", nbytes, at) for at, (name, nbytes) in enumerate(parameters, 1)
    ]
    named += [
        item(f"exp_avg of {name} of {model}", "optimizer state", nbytes, 50 + at)
        for at, (name, nbytes) in enumerate(zip(loaded, sizes, strict=True))
    ]
    table = {at: [one] for at, one in enumerate(named)}
    return SimpleNamespace(process=SimpleNamespace(snapshot=SimpleNamespace(named=table)))


def test_state_is_that_of_the_parameter_that_had_its_place() -> None:
    """The sizes, as they were loaded, are those of the parameters in the model's order."""
    found = state_order(view_of(BY_RANK, [3456, 128, 8192, 24]), "exp_avg", "fc.weight of Net")
    assert found is not None
    assert (found.owner, found.saved, found.misfits, found.total) == ("conv.bias", "the model's", 2, 4)


def test_owner_in_an_order_that_is_not_known_is_the_only_parameter_of_that_size() -> None:
    names = [name for name, _ in PARAMETERS]
    found = state_order(view_of(names, [128, 24, 3456, 8192]), "exp_avg", "fc.weight of Net")
    assert found is not None and (found.owner, found.saved, found.misfits) == ("conv.weight", None, 4)


def test_of_several_parameters_of_that_size_the_order_decides() -> None:
    parameters = [*PARAMETERS, ("norm.weight", 128)]
    names = [name for name, _ in parameters]
    known = view_of([names[4], *names[:4]], [3456, 128, 8192, 24, 128], parameters=parameters)
    found = state_order(known, "exp_avg", "conv.weight of Net")
    assert found is not None and (found.owner, found.saved) == ("conv.bias", "the model's")
    found = state_order(
        view_of(names, [128, 24, 128, 3456, 8192], parameters=parameters), "exp_avg", "fc.weight of Net"
    )
    assert found is not None and (found.owner, found.saved) == (None, None)


@pytest.mark.parametrize(
    ("sizes", "saved", "owner"),
    [
        ([24, 8192, 128, 3456], "the reverse of the model's", "conv.bias"),
        ([128, 3456, 24, 8192], "that of their names", "fc.bias"),
    ],
)
def test_other_orders_are_named(sizes: list[int], saved: str, owner: str) -> None:
    names = [name for name, _ in PARAMETERS]
    found = state_order(view_of(names, sizes), "exp_avg", "fc.weight of Net")
    assert found is not None and (found.saved, found.owner) == (saved, owner)


def test_states_of_float32_fit_parameters_of_bfloat16() -> None:
    found = state_order(view_of(BY_RANK, [6912, 256, 16384, 48]), "exp_avg", "fc.weight of Net")
    assert found is not None and found.owner == "conv.bias" and found.misfits == 2


@pytest.mark.parametrize(
    ("loaded", "sizes"),
    [
        (BY_RANK, [3456, 8192, 128, 24]),  # all fit
        (BY_RANK, [3456, 512, 128, 24]),  # a layer that was smaller
        (BY_RANK, [128, 128, 128, 128]),  # of another model
        (BY_RANK[:2], [3456, 8192]),  # too few
    ],
)
def test_states_whose_sizes_the_order_does_not_explain_are_another_thing(loaded: list[str], sizes: list[int]) -> None:
    assert state_order(view_of(loaded, sizes), "exp_avg", "fc.weight of Net") is None


def test_states_of_another_optimizer_do_not_count() -> None:
    view = view_of(BY_RANK, [3456, 128, 8192, 24], model="Net #2")
    assert state_order(view, "exp_avg", "fc.weight of Net") is None
    assert state_order(view, "exp_avg_sq", "fc.weight of Net #2") is None


@pytest.mark.parametrize(
    ("sizes", "misplaced"),
    [
        ([128, 24, 3456, 8192], True),
        ([6912, 256, 48, 16384], True),  # float32 for bfloat16
        ([3456, 128, 8192, 24], None),  # each its own
        ([6912, 256, 16384, 48], None),
        ([128, 24, 3456, 9000], False),  # of another model
        ([4, 4, 4, 4], None),  # counts of steps
        ([3456, 128, 8192], None),  # one is not known
    ],
)
def test_misplaced_states_are_those_of_the_same_parameters_in_another_order(
    sizes: list[int], misplaced: bool | None
) -> None:
    names = [name for name, _ in PARAMETERS][: len(sizes)]
    named = view_of(names, sizes).process.snapshot.named.values()
    assert are_misplaced(item for items in named for item in items) is misplaced
