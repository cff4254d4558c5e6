"""A loaded state of an optimizer whose parameter was made larger since it was saved, and states that fit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.operators import state_sizes

STATE, OLD, NEW = 1, 2, 3  # addresses of storages
PARAMETER = "parameter tok.weight"


def storage(base: int, nbytes: int, allocated: int, freed: int | None = None) -> Any:
    """Its memory lives from one epoch to another."""
    end = SimpleNamespace(epoch=freed) if freed is not None else None
    return SimpleNamespace(
        base=base,
        nbytes=nbytes,
        allocated=SimpleNamespace(epoch=allocated, mono_ns=allocated),
        freed=end,
        older=False,
        origin=None,
        state="freed" if freed is not None else "live",
    )


def name(text: str, role: str, base: int, nbytes: int, epoch: int) -> Any:
    return SimpleNamespace(name=text, role=role, base=base, nbytes=nbytes, epoch=epoch, earlier=False)


def view_of(old_nbytes: int, recorded: int, *, old_freed: bool = True) -> Any:
    """`tok.weight` has had 64 bytes (or others), and 4096 since epoch 50; `recorded`: when the state's name was."""
    storages = [
        storage(STATE, 64, 40),
        storage(OLD, old_nbytes, 10, 51 if old_freed else None),
        storage(NEW, 4096, 50),
    ]
    state = name("exp_avg of tok.weight", "optimizer state", STATE, 64, recorded)
    parameters = [name(PARAMETER, "parameter", OLD, old_nbytes, 20), name(PARAMETER, "parameter", NEW, 4096, 55)]
    by_name = {PARAMETER: parameters, state.name: [state]}
    live = {item.base: item for item in storages if item.freed is None}
    named = SimpleNamespace(of_storage=lambda held, addr: ([state], []), with_name=lambda text: by_name.get(text, []))
    space = SimpleNamespace(uses=SimpleNamespace(named=named), live_around=live.get)
    table = SimpleNamespace(at=lambda base: [item for item in storages if item.base == base])
    process = SimpleNamespace(snapshot=SimpleNamespace(storages=table, named={}))
    return SimpleNamespace(place=SimpleNamespace(storage=storages[0]), space=space, process=process)


@pytest.fixture(autouse=True)
def _lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        state_sizes, "find_operator", lambda view: SimpleNamespace(name="aten::_fused_adam_", tensors=())
    )
    monkeypatch.setattr(state_sizes, "line_that_made", lambda *given, **more: "line 26 in resize")
    monkeypatch.setattr(state_sizes, "_loading_line", lambda view: " (line 66)")
    monkeypatch.setattr(state_sizes, "grown_parameter", lambda *given: None)


def test_state_from_before_a_parameter_was_made_larger_is_not_loaded_again() -> None:
    view = view_of(64, recorded=60)
    found = state_sizes.state_size(view)
    assert found is not None and found.resized and found.later
    assert state_sizes.small_state(view) == (
        "`exp_avg` of tok.weight (64 bytes), which load_state_dict() (line 66) brought, is smaller than the parameter "
        "(4096 bytes), which line 26 in resize made larger"
    )
    advice = state_sizes.state_advice(view, found)
    assert "Begin with the new optimizer, without load_state_dict() (line 66)" in advice
    assert "as the parameter had before line 26 in resize" in advice
    assert "Without `fused=True` step() refuses such a state" in advice


def test_state_that_the_optimizer_had_before_is_not_said_to_be_loaded() -> None:
    """The parameter was made larger below a running optimizer; what its source loads came before."""
    view = view_of(64, recorded=45)
    found = state_sizes.state_size(view)
    assert found is not None and found.resized and not found.later
    assert "brought" not in (state_sizes.small_state(view) or "")
    assert state_sizes.state_advice(view, found).startswith("Make a new optimizer after line 26 in resize")


def test_state_of_another_parameter_is_not_said_to_be_of_one_that_was_resized() -> None:
    """Which never had that size here; the lines may be anywhere."""
    found = state_sizes.state_size(view_of(2176, recorded=60))
    assert found is not None and not found.resized
    assert "give the parameters in the order" in state_sizes.state_advice(view_of(2176, recorded=60), found)


def test_two_parameters_of_one_name_are_not_told_apart() -> None:
    """Both live, and the operator has neither."""
    assert state_sizes.state_size(view_of(2176, recorded=60, old_freed=False)) is None


NEIGHBOUR, OTHER, LARGE = 9, 4096, 1 << 20  # addresses of storages


def view_of_several(address: int, *sizes: tuple[int, int, int]) -> Any:
    """A fault at the storage of a tensor that fits; `sizes`: of each state its address, bytes, and the parameter's."""
    held = [storage(NEIGHBOUR, 64, 5)] + [storage(base, nbytes, 10) for base, nbytes, _ in sizes]
    states = {base: name(f"exp_avg of p{base}", "optimizer state", base, nbytes, 20) for base, nbytes, _ in sizes}
    parameters = {
        f"parameter p{base}": [name(f"parameter p{base}", "parameter", base + LARGE, of, 20)] for base, _, of in sizes
    }
    named = SimpleNamespace(
        of_storage=lambda one, addr: ([states[one.base]] if one.base in states else [], []),
        with_name=lambda text: parameters.get(text, []),
    )
    space = SimpleNamespace(uses=SimpleNamespace(named=named), live_around={item.base: item for item in held}.get)
    table = SimpleNamespace(at=lambda base: [item for item in held if item.base == base])
    process = SimpleNamespace(snapshot=SimpleNamespace(storages=table, named={"": list(states.values())}))
    return SimpleNamespace(place=SimpleNamespace(storage=held[0], addr=address), space=space, process=process)


def test_the_state_that_would_reach_the_address_is_named_and_not_the_storage_that_a_register_points_at() -> None:
    view = view_of_several(OTHER + 500, (64, 16, 160), (OTHER, 64, 4096))
    found = state_sizes.state_size(view)
    assert found is not None and (found.parameter, found.nbytes) == (f"p{OTHER}", 64)
    far = state_sizes.state_size(view_of_several(1 << 30, (64, 16, 160), (OTHER, 64, 4096)))
    assert far is not None and far.parameter == "p64"  # the first one that is too small


def test_states_that_fit_or_are_larger_lead_nowhere() -> None:
    assert state_sizes.state_size(view_of_several(OTHER + 500, (64, 128, 128), (OTHER, 4096, 64))) is None


def test_only_a_fused_operator_takes_states_to_be_as_large_as_their_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_sizes, "find_operator", lambda view: SimpleNamespace(name="aten::mul_", tensors=()))
    assert state_sizes.state_size(view_of_several(OTHER + 500, (OTHER, 64, 4096))) is None


def test_state_of_another_parameter_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The optimizer that made the state shares it with the one that loaded it."""
    view = view_of(2176, recorded=60)
    own = view.space.uses.named.of_storage(None, 0)[0]
    maker = name("exp_avg of stem.weight of Net", "optimizer state", STATE, 64, 41)
    view.space.uses.named.of_storage = lambda held, addr: ([*own, maker], [])
    found = state_sizes.state_size(view)
    assert found is not None and found.owner == "stem.weight of Net"
    assert "which load_state_dict() (line 66) brought" in (state_sizes.small_state(view) or "")
    assert "is the state of stem.weight of Net. load_state_dict()" in state_sizes.state_advice(view, found)


def test_the_same_parameter_of_another_model_is_no_other_one() -> None:
    view = view_of(64, recorded=60)
    own = view.space.uses.named.of_storage(None, 0)[0]
    twin = name("exp_avg of tok.weight of Net #2", "optimizer state", STATE, 64, 41)
    view.space.uses.named.of_storage = lambda held, addr: ([*own, twin], [])
    found = state_sizes.state_size(view)
    assert found is not None and found.owner is None
