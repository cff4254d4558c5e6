"""FSDP's storages: unit, parameter, and the rank's part of it; only for the right allocation lifetime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.address_space.address_info import UnitLife
from pytracer.analyze.tensors.uses import StorageUses
from pytracer.decode.recording.reader import read_box
from tests.support.synth import Box
from tests.unit.analyze.address_space.test_lookup import place

BASE, OTHER = 0x7F40_0000_0000, 0x7F40_1000_0000
WEIGHT: dict[str, Any] = {
    "fqn": "0.weight",
    "numel": 4096,
    "shard_numel": 2048,
    "itemsize": 4,
    "addr": 0x5600_0000_0000,
}
BIAS = {"fqn": "0.bias", "numel": 64, "shard_numel": 32, "itemsize": 4, "addr": 0x5600_0001_0000}
SHARD = 2080  # elements
GATHER: dict[str, Any] = {"sizes": [SHARD], "state": "completed", "nbytes": SHARD * 4}


def unit_at(tmp_path: Path, box: Box, addr: int) -> UnitLife | None:
    """What an FSDP unit used the storage at `addr` for."""
    return place(tmp_path, box, addr).unit


def gathering(box: Box, base: int, scope: str = "FSDP::all_gather (0)") -> Box:
    """An all-gather in place, as FSDP2's: this rank 1's input is the second half of the output."""
    at = box.scope(scope)
    return box.collective("_allgather_base_", addr=base + SHARD * 4, storage_addr=base, **GATHER,
                          output=(base, 2 * SHARD, 2 * SHARD * 4), scope=at)  # fmt: skip


def test_all_gather_output_holds_both_ranks_shards(tmp_path: Path) -> None:
    """Rank 0's shards of weight and bias, then rank 1's."""
    box = Box().unit("0", [WEIGHT, BIAS]).alloc(BASE, 2 * SHARD * 4).later(1)
    found = unit_at(tmp_path, gathering(box, BASE), BASE + SHARD * 4 + 2048 * 4 + 12)
    assert found is not None
    assert (found.what, found.unit, found.module) == ("all-gather-output", "0", "Net")
    assert (found.parameter, found.parameter_offset_bytes, found.shard_of_rank) == ("0.bias", 12, 1)


def test_buffer_of_another_life_is_not_named(tmp_path: Path) -> None:
    """The allocator reused the address."""
    box = Box().unit("0", [WEIGHT, BIAS]).alloc(BASE, 2 * SHARD * 4).later(1)
    gathering(box, BASE).later(1).free(BASE).later(1).alloc(BASE, 2 * SHARD * 4)
    found = place(tmp_path, box, BASE + 8)
    assert (found.kind, found.unit, found.names) == ("in-storage", None, ())
    assert found.earlier == ("all-gather output of FSDP unit 0",)


@pytest.mark.parametrize(("freed", "state"), [(True, "sharded"), (False, "unsharded")])
def test_unsharded_parameter_and_the_state_of_its_unit(tmp_path: Path, freed: bool, state: str) -> None:
    """While its storage lives the unit is unsharded; resized to zero, it is sharded."""
    box = Box().unit("0", [WEIGHT, BIAS]).alloc(BASE, 16384).alloc(OTHER, 256).later(1)
    box.scoped(1, box.scope("FSDP::all_gather_copy_out (0)"), [(BASE, 16384), (OTHER, 256)]).later(1)
    if freed:
        box.free(BASE).free(OTHER).later(1)
    found = unit_at(tmp_path, box, BASE + 40)
    assert found is not None
    assert (found.what, found.parameter, found.parameter_offset_bytes) == ("unsharded-parameter", "0.weight", 40)
    assert found.state == state
    assert found.name == "unsharded parameter 0.weight of FSDP unit 0"
    snapshot = read_box(tmp_path / "node0.101.blackbox")
    assert [(unit.fqn, at_end) for unit, at_end in StorageUses(snapshot).fsdp.states()] == [("0", state)]


def test_gradients_of_some_parameters_only_are_not_guessed(tmp_path: Path) -> None:
    """One gradient for two parameters: the operator does not show whose it is."""
    box = Box().unit("0", [WEIGHT, BIAS]).alloc(BASE, 256).later(1)
    box.scoped(2, box.scope("FSDP::post_backward_reduce (0)"), [(BASE, 256)])
    found = unit_at(tmp_path, box, BASE)
    assert found is not None
    assert (found.what, found.unit, found.parameter) == ("unsharded-gradient", "0", None)


def test_reduction_of_some_gradients_tells_no_parameter(tmp_path: Path) -> None:
    """The offsets of parameters change when others are left out."""
    box = Box().unit("0", [WEIGHT, BIAS]).alloc(BASE, 2048 * 8).alloc(OTHER, 2048 * 4).later(1)
    box.collective("_reduce_scatter_base_", addr=BASE, sizes=[4096], nbytes=4096 * 4, state="completed",
                   output=(OTHER, 2048, 2048 * 4), scope=box.scope("FSDP::post_backward_reduce (0)"))  # fmt: skip
    found = unit_at(tmp_path, box, OTHER + 100)
    assert found is not None
    assert (found.what, found.unit, found.parameter) == ("reduce-scatter-output", "0", None)


def test_local_shard_is_named_by_its_entry(tmp_path: Path) -> None:
    """It is older than any collective."""
    box = Box().alloc(WEIGHT["addr"], 8192).later(1).unit("0", [WEIGHT, BIAS])
    found = unit_at(tmp_path, box, WEIGHT["addr"] + 100)
    assert found is not None
    assert (found.what, found.parameter, found.shard_of_rank) == ("local-shard", "0.weight", 1)
    assert (found.nbytes, found.parameter_offset_bytes) == (8192, 100)


FLAT: dict[str, Any] = {
    "wrapper": "FullyShardedDataParallel", "flat": True, "shard": {"addr": OTHER, "numel": SHARD, "itemsize": 4},
}  # fmt: skip
FLAT_PARAMETERS = [
    {"fqn": "0.weight", "offset": 0, "numel": 4096},
    {"fqn": "0.bias", "offset": 4096, "numel": 64},
]


def test_flat_parameter_in_another_dtype(tmp_path: Path) -> None:
    """FSDP1 with bfloat16: offsets count elements of what was gathered."""
    box = Box().unit("0", FLAT_PARAMETERS, **FLAT).alloc(BASE, 2 * SHARD * 2).later(1)
    box.collective("allgather_", addr=OTHER, sizes=[SHARD], nbytes=SHARD * 2, dtype="BFloat16", state="completed",
                   output=(BASE, 2 * SHARD, 2 * SHARD * 2), scope=box.scope("FSDP::all_gather (0)"))  # fmt: skip
    found = unit_at(tmp_path, box, BASE + 4096 * 2 + 6)
    assert found is not None
    assert (found.what, found.parameter) == ("unsharded-flat-parameter", "0.bias")
    assert (found.parameter_offset_bytes, found.state, found.shard_of_rank) == (6, "unsharded", None)


def test_flat_shard_of_rank_1_begins_in_the_middle_of_a_parameter(tmp_path: Path) -> None:
    """Rank 1's first element is number 2080 of the flat parameter."""
    box = Box().alloc(OTHER, SHARD * 4).later(1).unit("0", FLAT_PARAMETERS, **FLAT)
    found = unit_at(tmp_path, box, OTHER + 8)
    assert found is not None
    assert (found.what, found.parameter) == ("local-flat-shard", "0.weight")
    assert (found.offset_bytes, found.parameter_offset_bytes) == (8, SHARD * 4 + 8)


def test_unit_of_two_roots_names_no_root(tmp_path: Path) -> None:
    """Two models have a unit of that name; the parameter has the same name in both."""
    box = Box().unit("0", [WEIGHT, BIAS]).unit("0", [WEIGHT, BIAS], module="Net #2").alloc(BASE, 2 * SHARD * 4).later(1)
    found = unit_at(tmp_path, gathering(box, BASE), BASE)
    assert found is not None
    assert (found.module, found.unit, found.parameter, found.state) == (None, "0", "0.weight", None)


def test_unit_without_an_entry_is_still_named(tmp_path: Path) -> None:
    """Private attributes of another torch: the range names the unit, and no parameter is invented."""
    box = Box().alloc(BASE, 2 * SHARD * 4).later(1)
    found = unit_at(tmp_path, gathering(box, BASE, "FSDP::all_gather (layers.0)"), BASE)
    assert found is not None
    assert (found.what, found.unit, found.parameter, found.wrapper) == ("all-gather-output", "layers.0", None, None)


def test_root_and_several_groups_of_a_unit(tmp_path: Path) -> None:
    """The root's ranges have no name; of groups of different size, the range identifies one."""
    box = Box().unit("", [WEIGHT, BIAS]).unit("", [{**WEIGHT, "fqn": "expert"}], world_size=4)
    box.alloc(BASE, 2 * SHARD * 4).later(1)
    found = unit_at(tmp_path, gathering(box, BASE, "FSDP::all_gather [pg=2]"), BASE)
    assert found is not None
    assert (found.unit, found.unit_words, found.parameter) == ("", "the root FSDP unit", "0.weight")


def test_what_a_communication_hook_sends_is_named_with_its_bucket(tmp_path: Path) -> None:
    """The tensor is not the bucket; both are named."""
    box = Box().alloc(BASE, 4096).alloc(OTHER, 2048).later(1)
    box.buckets("Net", [{"addr": BASE, "nbytes": 4096, "parameters": {"w": 4096}}], 1, rebuilt=True)
    scope = box.scope("DDP::comm_hook fp16_compress_hook (Net 0)")
    box.collective("allreduce_", addr=OTHER, nbytes=2048, dtype="Half", sizes=[1024], scope=scope)
    name = "tensor of communication hook fp16_compress_hook for DDP bucket 0 of Net (generation 1)"
    assert place(tmp_path, box, OTHER + 4).names == (name,)
    snapshot = read_box(tmp_path / "node0.101.blackbox")
    found = StorageUses(snapshot).buffer_of(snapshot.collectives[0])
    assert found is not None
    assert (found.names, found.bucket_index) == ((name, "DDP bucket 0 of Net (generation 1)"), 0)


def test_buffer_without_a_name_tells_where_it_was_allocated(tmp_path: Path) -> None:
    """A tensor of the program itself."""
    box = Box()
    box.alloc(BASE, 4096, by=box.code("step", "/home/me/train.py", 12)).later(1).collective(
        "allreduce_", addr=BASE, nbytes=4096
    )
    snapshot = read_box(box.write(tmp_path / "node0.101.blackbox"))
    found = StorageUses(snapshot).buffer_of(snapshot.collectives[0])
    assert found is not None
    assert (found.what, found.names) == ("storage of 4096 bytes allocated at train.py:12 in step", ())


def test_builtin_hook_is_guessed_by_size(tmp_path: Path) -> None:
    """It has no scope: half-sized numbers, as many as one bucket has. Another count matches no bucket."""
    box = Box().hook("Net", "FP16_COMPRESS")
    box.buckets("Net", [{"addr": BASE, "nbytes": 4096, "parameters": {"w": 4096}}], 1, rebuilt=True)
    box.collective("allreduce_", addr=OTHER, nbytes=2048, dtype="Half", sizes=[1024])
    box.collective("allreduce_", addr=OTHER, nbytes=2000, dtype="Half", sizes=[1000])
    snapshot = read_box(box.write(tmp_path / "node0.101.blackbox"))
    first, second = (StorageUses(snapshot).buffer_of(item) for item in snapshot.collectives)
    assert first is not None and second is not None
    name = "tensor of communication hook FP16_COMPRESS for DDP bucket 0 of Net (generation 1), guessed"
    assert (first.what, first.bucket_index) == (name, 0)
    assert (second.what, second.bucket_index) == (None, None)


def test_what_a_callback_sends_is_guessed_when_there_is_one_bucket_only(tmp_path: Path) -> None:
    """PowerSGD continues in a gloo callback; with two buckets, the right one is unknown."""
    for count in (1, 2):
        box = Box()
        layout = [{"addr": BASE + i * 4096, "nbytes": 4096, "parameters": {f"w{i}": 4096}} for i in range(count)]
        box.buckets("Net", layout, 1, rebuilt=True)
        scope = box.scope("DDP::comm_hook powerSGD_hook (Net 0)")
        box.collective("allreduce_", addr=OTHER, nbytes=64, scope=scope).collective("allreduce_", addr=OTHER, nbytes=32)
        snapshot = read_box(box.write(tmp_path / f"node{count}.101.blackbox"))
        found = StorageUses(snapshot).buffer_of(snapshot.collectives[1])
        assert found is not None
        assert found.bucket_index == (0 if count == 1 else None)
        assert (found.what or "").endswith(", guessed") == (count == 1)
