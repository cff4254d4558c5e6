"""What was kept when a device was full. Tensors of the host with a graph stand for those of a device."""

from __future__ import annotations

from types import TracebackType

import pytest

torch = pytest.importorskip("torch")

from pytracer.record.torch.kept_tensors import kept_tensors  # noqa: E402


class Recorder:
    """Its attribute is no variable of a frame."""

    def __init__(self) -> None:
        self.maps: dict[int, list[object]] = {0: [], 1: []}


def ended(kind: type[Exception], *, graph: bool, rounds: int = 20) -> tuple[Exception, TracebackType | None]:
    """As in a loop that keeps the loss of each round."""
    weight = torch.ones(4, requires_grad=graph)
    losses, recorder, total = [], Recorder(), torch.zeros(())
    try:
        for number in range(rounds):
            losses.append((weight * 2).sum())
            recorder.maps[number % 2].append(weight * 3)
            total = total + losses[-1]
        raise kind("CUDA out of memory.")
    except kind as error:
        return error, error.__traceback__


def test_a_list_and_an_attribute_that_keep_graphs_are_recorded() -> None:
    """And a number that sums them up."""
    found = {item["name"]: item["value"] for item in kept_tensors(*ended(torch.OutOfMemoryError, graph=True))}
    assert found == {
        "tensors in losses": "20, 0 bytes on devices, 20 with graph",
        "tensors in recorder.maps": "20, 0 bytes on devices, 20 with graph",
        "graph of total": "yes",
    }


@pytest.mark.parametrize(
    ("kind", "graph", "rounds"),
    [(ValueError, True, 20), (torch.OutOfMemoryError, False, 20), (torch.OutOfMemoryError, True, 3)],
    ids=["another error", "tensors of the host without graphs", "few"],
)
def test_nothing_is_recorded_of_others(kind: type[Exception], graph: bool, rounds: int) -> None:
    """What holds no memory of a device, or next to none."""
    assert [item for item in kept_tensors(*ended(kind, graph=graph, rounds=rounds)) if "tensors" in item["name"]] == []


def test_parameters_and_the_state_of_an_optimizer_are_not_what_is_kept() -> None:
    """They belong to training."""

    class Optimizer:
        def __init__(self) -> None:
            weight = torch.ones(2, requires_grad=True)
            self.kept = [weight * 2 for _ in range(20)]
            self.state = dict(enumerate(self.kept[:]))

    optimizer, parameters = Optimizer(), [torch.nn.Parameter(torch.ones(2)) for _ in range(20)]
    try:
        raise torch.OutOfMemoryError(f"CUDA out of memory: {len(parameters)}, {optimizer}")
    except torch.OutOfMemoryError as error:
        names = [item["name"] for item in kept_tensors(error, error.__traceback__)]
    assert names == ["tensors in optimizer.kept"]
