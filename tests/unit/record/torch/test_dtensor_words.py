"""DTensors: their whole shape and placements, without an operator; and what only has their name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytracer.record.torch.dtensor_words import sharded_words
from pytracer.record.torch.frame_variables import words_of

torch = pytest.importorskip("torch")
tensors = pytest.importorskip("torch.distributed.tensor")


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[object]:
    """Of this process alone."""
    from torch.distributed.device_mesh import init_device_mesh

    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield init_device_mesh("cpu", (1, 1))
    torch.distributed.destroy_process_group()


class DTensor:
    """Not torch's."""

    @property
    def shape(self) -> object:
        raise AssertionError("code of the program")


def test_whole_shape_and_placements_are_told(mesh: object) -> None:
    """Also of a parameter; nothing is computed."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seen(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, *_: object, **__: object) -> object:
            raise AssertionError("an operator ran")

    placed = [tensors.Shard(1), tensors.Replicate()]
    whole = tensors.distribute_tensor(torch.ones(4, 6), mesh, placed)
    weight = torch.nn.Parameter(whole)
    with Seen():
        assert words_of(whole) == "DTensor [4, 6] float32, Shard(1), Replicate()"
        assert words_of(weight) == "DTensor [4, 6] float32, Shard(1), Replicate()"


@pytest.mark.parametrize("value", [DTensor(), torch.ones(2), 7, None])
def test_other_objects_are_none(value: object) -> None:
    """A class of the program may have that name."""
    assert sharded_words(value) is None
