"""Collectives, DDP and FSDP under torch.compile; rank 0 prints what dynamo did with each."""

import functools
import pathlib
import sys

import job
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

sys.path.append(str(pathlib.Path(__file__).parents[2] / "crash" / "programs"))
from what_dynamo_did import four_steps, observed, tell

compiled = functools.partial(torch.compile, backend="eager")
whole = functools.partial(compiled, fullgraph=True)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def batch():
    return torch.randn(5, 8, generator=torch.Generator().manual_seed(dist.get_rank()))


def trained(model, forward, wrap=lambda step: step):
    return four_steps(torch.optim.SGD(model.parameters(), lr=0.1), forward, batch(), wrap)


def collectives_in_one_graph():
    @whole
    def run(x):
        y = x * dist.get_world_size()
        dist.all_reduce(y)
        return y + dist.get_rank()

    return [run(batch()) for _ in range(2)]


def functional_collectives_in_one_graph():
    @whole
    def run(x):
        return funcol.all_reduce(x, "sum", dist.group.WORLD) + funcol.all_gather_tensor(x, 0, dist.group.WORLD)[:5]

    return [run(batch()) for _ in range(2)]


def group_made_inside():
    @compiled
    def run(x):
        group = dist.new_group([0, 1])
        y = x * 2
        dist.all_reduce(y, group=group)
        dist.barrier()
        return y

    return [run(batch()) for _ in range(2)]


def ddp_compiled():
    model = DistributedDataParallel(net())
    return trained(model, compiled(model))


def ddp_of_compiled():
    model = DistributedDataParallel(compiled(net()))
    return trained(model, model)


def ddp_step_with_hook():
    model = DistributedDataParallel(net())

    def hook(state, bucket):
        work = dist.all_reduce(bucket.buffer() / 2, async_op=True)
        return work.get_future().then(lambda future: future.value()[0])

    model.register_comm_hook(None, hook)
    return trained(model, model, compiled)


def ddp_built_inside():
    @compiled
    def run(x):
        return DistributedDataParallel(net())(x)

    return [run(batch()).detach() for _ in range(2)]


def sharded():
    model = net()
    for unit in (model[0], model[2], model):
        fully_shard(unit)
    return model


def fully_shard_compiled():
    model = sharded()
    return trained(model, compiled(model))


def fully_shard_step():
    model = sharded()
    return trained(model, model, compiled)


def flat_step():
    model = FullyShardedDataParallel(net(), use_orig_params=True, device_id=torch.device("cpu"))
    return trained(model, model, compiled)


SCENARIOS = [
    collectives_in_one_graph, functional_collectives_in_one_graph, group_made_inside, ddp_compiled, ddp_of_compiled,
    ddp_step_with_hook, ddp_built_inside, fully_shard_compiled, fully_shard_step, flat_step,
]  # fmt: skip


def programs(rank):
    if rank == 0:
        tell(SCENARIOS)
    else:
        for scenario in SCENARIOS:
            observed(scenario)


job.SECONDS = 60  # ranks that compile do not keep step
job.main(programs)
