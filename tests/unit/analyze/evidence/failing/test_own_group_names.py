"""The ranks and the number of groups that are in the name of a process group."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.processes.own_group_names import _made_of


def made_of(name: str, world_size: int | None) -> tuple[tuple[int, ...], int] | None:
    rank = SimpleNamespace(world_size=world_size) if world_size is not None else None
    at: Any = SimpleNamespace(snapshot=SimpleNamespace(rank=rank))
    return _made_of(at, name)


def test_name_that_torch_makes_is_taken_apart() -> None:
    c10d = pytest.importorskip("torch.distributed.distributed_c10d")
    groups = len(c10d._world.pg_names)
    assert made_of(c10d._hash_ranks_to_str([1, 3]), 4) == ((1, 3), groups)


@pytest.mark.parametrize("world_size", [None, 0, 64])
def test_of_too_many_possible_groups_none_is_tried(world_size: int | None) -> None:
    """Nor where the size of the world is not known."""
    assert made_of("ad56679d2c95f00a464e146ac76c2deb475d8262", world_size) is None


def test_hash_of_something_else_is_no_group() -> None:
    assert made_of("0" * 40, 2) is None
    assert made_of("ad56679d2c95f00a464e146ac76c2deb475d8262", 2) == ((0, 1), 2)
