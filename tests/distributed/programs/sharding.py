"""FSDP1, FSDP2, hybrid sharding and DTensor on gloo; rank 1 faults in one of their storages."""

import torch
import torch.distributed as dist
from job import main
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from touch import PAGE, fill_heap, leave_room, make_room, page_in, read_freed, touch

WIDTH = 128


class Block(nn.Module):
    """Two layers: 64 KiB and 32 KiB of weights."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH // 2)
        self.between = None

    def forward(self, x):
        x = self.up(x).relu()
        if self.between is not None:
            self.between()
        return nn.functional.pad(self.down(x), (0, WIDTH // 2))


class Net(nn.Module):
    """Two blocks and a head, which is the root's own."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def step(model):
    model.zero_grad()
    model(torch.randn(4, WIDTH)).square().mean().backward()


def sharded(mesh=None, **options):
    """FSDP2: each block is a unit, the head is the root's."""
    torch.manual_seed(0)
    fill_heap()
    net = Net()
    for block in net.blocks:
        fully_shard(block, mesh=mesh, **options)
    return fully_shard(net, mesh=mesh, **options)


def flat(**options):
    """FSDP1, likewise."""
    torch.manual_seed(0)
    fill_heap()
    policy = ModuleWrapPolicy({Block})
    return FullyShardedDataParallel(Net(), auto_wrap_policy=policy, device_id=torch.device("cpu"), **options)


def at_rank_1(rank, act):
    if rank == 1:
        act()
    dist.barrier()


def unit(what, parameter=None, unit="blocks.1", offset=None, **more):
    return {"what": what, "unit": unit, "parameter": parameter, "parameter_offset_bytes": offset, **more}


def fault_in(tensor, nbytes, fsdp):
    """Faults in a live tensor at the start of its storage."""
    at = page_in(tensor, nbytes)
    start = tensor.untyped_storage().data_ptr()
    if fsdp.get("parameter_offset_bytes", 0) is None:
        fsdp["parameter_offset_bytes"] = at - tensor.data_ptr()
    touch(at, kind="in-storage", base=hex(start), offset=at - start, fsdp=fsdp)


# ---- FSDP2 ----


def local_shard(rank):
    """A shard, whose address does not change."""
    model = sharded()
    step(model)
    step(model)
    shard = model.blocks[1].up.weight.to_local()
    at_rank_1(rank, lambda: fault_in(shard, 5000, unit("local-shard", "blocks.1.up.weight", state="sharded")))


def unsharded(rank):
    """An unsharded parameter, in the forward of its unit."""
    model = sharded()
    step(model)
    block = model.blocks[1]
    if rank == 1:
        truth = unit("unsharded-parameter", "blocks.1.down.weight", state="unsharded")
        block.between = lambda: fault_in(block.down.weight, 9000, truth)
    step(model)


def resharded(rank):
    """An address from the last forward, whose storage was resized to zero since."""
    model = sharded()
    _late(rank, model, model.blocks[1], lambda: model.blocks[1].up.weight, "unsharded-parameter")


def _late(rank, model, block, whole, what):
    """Rank 1 reads 20000 bytes after the address of `whole()` in the last forward, while the block was unsharded."""
    step(model)
    found = []

    def remember():
        tensor = whole()
        found[:] = [page_in(tensor, 20000), tensor.data_ptr(), tensor.untyped_storage().data_ptr()]
        leave_room()

    make_room()
    block.between = remember
    with torch.no_grad():
        model(torch.randn(4, WIDTH))
    at, start, base = found
    truth = unit(what, "blocks.1.up.weight", offset=at - start, state="sharded")
    at_rank_1(rank, lambda: read_freed(at, base=hex(base), offset=at - base, fsdp=truth))


def gathered(rank):
    """The output of an all-gather, while it is copied out: rank 0's part, of the second parameter."""
    from torch.distributed.fsdp._fully_shard import _fsdp_param_group

    model = sharded()
    step(model)
    copy_out = _fsdp_param_group.foreach_all_gather_copy_out

    def stop(result, params, group):
        if params[0]._param_fqn.startswith("blocks.1"):
            weight, bias, second = (param._sharded_param_data.numel() * 4 for param in params[:3])
            at = page_in(result.all_gather_output, weight + bias)
            truth = unit("all-gather-output", "blocks.1.down.weight", shard_of_rank=0, state="sharded")
            truth["parameter_offset_bytes"] = at - result.all_gather_output.data_ptr() - weight - bias
            assert truth["parameter_offset_bytes"] < second
            base = result.all_gather_output.untyped_storage().data_ptr()
            touch(at, kind="in-storage", base=hex(base), offset=at - base, fsdp=truth)
        return copy_out(result, params, group)

    if rank == 1:
        _fsdp_param_group.foreach_all_gather_copy_out = stop
    step(model)


def reduced(rank):
    """A sharded gradient, in the storage that a reduce-scatter wrote."""
    model = sharded()
    step(model)
    gradient = model.blocks[1].up.weight.grad.to_local()
    truth = unit("reduce-scatter-output", "blocks.1.up.weight", shard_of_rank=rank)
    at_rank_1(rank, lambda: fault_in(gradient, 6000, truth))


def by_columns(rank):
    """Sharded along the second dimension, which needs a copy outside FSDP's operators."""
    model = sharded(shard_placement_fn=lambda parameter: Shard(parameter.ndim - 1))
    step(model)
    block = model.blocks[1]
    if rank == 1:
        truth = unit("unsharded-parameter", "blocks.1.up.weight", state="unsharded")
        block.between = lambda: fault_in(block.up.weight, 9000, truth)
    step(model)


def hybrid(rank):
    """HSDP over two by two ranks: the reduce-scatter's output is all-reduced, too."""
    model = sharded(init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))
    step(model)
    gradient = model.blocks[1].up.weight.grad.to_local()
    truth = unit("reduce-scatter-output", "blocks.1.up.weight", shard_of_rank=rank % 2)
    at_rank_1(rank, lambda: fault_in(gradient, 6000, truth))


# ---- FSDP1 ----


def flat_shard(rank):
    """This rank's half of a flat parameter: the second half begins in the first parameter."""
    model = flat()
    step(model)
    shard = model.blocks[1]._handle.flat_param._local_shard
    numels = [WIDTH * WIDTH, WIDTH, WIDTH // 2 * WIDTH]
    at = page_in(shard, 21000)
    element = (at - shard.data_ptr()) // 4 + rank * shard.numel()
    offset = (element - numels[0] - numels[1]) * 4
    assert offset >= 0 or rank == 0
    base = shard.untyped_storage().data_ptr()
    truth = unit("local-flat-shard", "blocks.1.down.weight", offset=offset, state="sharded", shard_of_rank=rank)
    at_rank_1(rank, lambda: touch(at, kind="in-storage", base=hex(base), offset=at - base, fsdp=truth))


def _flat_unsharded(rank, model):
    step(model)
    block = model.blocks[1]

    def fault():
        handle = block._handle
        whole = handle.flat_param._full_param_padded
        itemsize = whole.element_size()
        start = (WIDTH * WIDTH + WIDTH) * itemsize
        at = page_in(whole, start)
        truth = unit("unsharded-flat-parameter", "blocks.1.down.weight", offset=at - whole.data_ptr() - start,
                     state="unsharded")  # fmt: skip
        base = whole.untyped_storage().data_ptr()
        touch(at, kind="in-storage", base=hex(base), offset=at - base, fsdp=truth)

    if rank == 1:
        block._fsdp_wrapped_module.between = fault
    step(model)


def flat_unsharded(rank):
    """The unsharded flat parameter, in forward."""
    _flat_unsharded(rank, flat())


def flat_original(rank):
    """The same with use_orig_params, gathered in bfloat16."""
    _flat_unsharded(rank, flat(use_orig_params=True, mixed_precision=MixedPrecision(param_dtype=torch.bfloat16)))


def flat_resharded(rank):
    """An address in the flat parameter from the last forward."""
    model = flat(sharding_strategy=ShardingStrategy.FULL_SHARD)
    block = model.blocks[1]
    inner = block._fsdp_wrapped_module
    _late(rank, model, inner, lambda: block._handle.flat_param._full_param_padded, "unsharded-flat-parameter")


# ---- DTensor ----


def tensor_parallel(rank):
    """A column-wise and a row-wise sharded layer: rank 1's part of one of them."""
    torch.manual_seed(0)
    net = Net()
    mesh = init_device_mesh("cpu", (2,))
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    for block in net.blocks:
        parallelize_module(block, mesh, plan)
    step(net)
    local = net.blocks[1].up.weight.to_local()
    at = page_in(local, 5000)
    base = local.untyped_storage().data_ptr()
    at_rank_1(rank, lambda: touch(at, kind="in-storage", base=hex(base), offset=at - base,
                                  name="parameter blocks.1.up.weight"))  # fmt: skip


if __name__ == "__main__":
    assert PAGE == 4096
    main(
        local_shard, unsharded, resharded, gathered, reduced, by_columns, hybrid,
        flat_shard, flat_unsharded, flat_original, flat_resharded, tensor_parallel,
    )  # fmt: skip
