"""Jobs of two ranks over NCCL, selected by the first word."""

from __future__ import annotations

import ctypes
import os
import sys
import time

import torch
import torch.distributed as dist
from fake import control
from torch import nn

RANK = int(os.environ["RANK"])
DEVICE = torch.device("cuda", RANK)


def model() -> nn.Module:
    """Two layers; cuDNN is not used."""
    return nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 16)).to(DEVICE)


def ddp(layers: nn.Module | None = None, steps: int = 3) -> nn.parallel.DistributedDataParallel:
    """Trains a little, so that the buckets have been rebuilt."""
    wrapped = nn.parallel.DistributedDataParallel(layers or model(), device_ids=[RANK])
    for _ in range(steps):
        wrapped(torch.randn(4, 256, device=DEVICE)).sum().backward()
    return wrapped


def healthy() -> None:
    """No error, for longer than the interval at which the Flight Recorder is read."""
    ddp()
    time.sleep(2.5)
    dist.barrier()


def bucket_fault() -> None:
    """Rank 1 reads its gradient bucket on the host."""
    wrapped = ddp()
    torch.cuda.synchronize()
    grad = next(iter(wrapped.module.parameters())).grad
    assert grad is not None
    dist.barrier()
    if RANK == 1:
        from pytracer.record.torch.library import load_for_this_process  # the address as native code would have it

        ctypes.string_at(load_for_this_process()[0].buckets(wrapped.reducer)[0][1] + 8, 4)
    time.sleep(60)


def fsdp_fault() -> None:
    """Rank 1 reads the shard of a parameter on the host."""
    from torch.distributed.fsdp import fully_shard

    layers = model()
    for layer in layers:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(layers)
    for _ in range(2):
        layers(torch.randn(4, 256, device=DEVICE)).sum().backward()
    torch.cuda.synchronize()
    dist.barrier()
    if RANK == 1:
        ctypes.string_at(layers[0].weight.to_local().data_ptr() + 16, 4)
    time.sleep(60)


def hang() -> None:
    """Rank 1 does not enter the last collective; the watchdog ends rank 0."""
    tensor = torch.ones(1024, device=DEVICE)
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    time.sleep(2.5)
    if RANK == 0:
        dist.all_reduce(tensor)
        torch.cuda.synchronize()
    time.sleep(100)


def illegal_access() -> None:
    """A kernel of rank 1 faults; its next wait raises."""
    wrapped = ddp()
    torch.cuda.synchronize()
    dist.barrier()
    if RANK == 1:
        control("fault_in_next_kernel", 700)
    wrapped(torch.randn(4, 256, device=DEVICE)).sum().backward()
    torch.cuda.synchronize()
    time.sleep(60)


def captured() -> None:
    """A collective inside a CUDA graph, replayed after its buffer was freed; then rank 1 faults on the host."""
    tensor = torch.ones(1 << 18, device=DEVICE)
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(tensor)
    graph.replay()
    addr = tensor.data_ptr()
    del tensor
    graph.replay()
    torch.cuda.synchronize()
    dist.barrier()
    if RANK == 1:
        ctypes.string_at(addr, 4)
    time.sleep(60)


def coalesced() -> None:
    """Several collectives that torch runs, and counts, as one; then an ordinary one, and a batch of sends."""
    tensors = [torch.ones(64, device=DEVICE) for _ in range(3)]
    dist.all_reduce(tensors[0])
    with dist.distributed_c10d._coalescing_manager(device=DEVICE):
        for tensor in tensors:
            dist.broadcast(tensor, 0)
    with dist.distributed_c10d._coalescing_manager(device=DEVICE):
        for tensor in tensors:
            dist.all_reduce(tensor)
    other = 1 - RANK
    batch = [dist.P2POp(dist.isend, tensors[0], other), dist.P2POp(dist.irecv, tensors[1], other)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    dist.all_reduce(tensors[0])
    torch.cuda.synchronize()
    time.sleep(3.5)
    if RANK == 0:
        control("hang", 1)  # work queued from now on does not complete
    dist.all_reduce(tensors[0])
    time.sleep(2.5)
    os._exit(0)


def bucket_in_graph() -> None:
    """A graph's static input is freed, a DDP bucket gets its memory, the graph is replayed; rank 1 faults."""
    layers, graph = model(), torch.cuda.CUDAGraph()
    static = torch.ones(256 * 256 + 256 + 256 * 16 + 16, device=DEVICE)
    with torch.cuda.graph(graph):
        result = static * 2
    graph.replay()
    addr = static.data_ptr()
    del static
    keep = ddp(layers)
    graph.replay()
    torch.cuda.synchronize()
    dist.barrier()
    if RANK == 1:
        ctypes.string_at(addr, 4)
    time.sleep(60)
    del keep, result


if __name__ == "__main__":
    from datetime import timedelta

    torch.backends.cudnn.enabled = False
    torch.cuda.set_device(DEVICE)
    dist.init_process_group("nccl", device_id=DEVICE, timeout=timedelta(seconds=6))
    {
        f.__name__: f
        for f in (healthy, bucket_fault, fsdp_fault, hang, illegal_access, captured, coalesced, bucket_in_graph)
    }[sys.argv[1]]()
    dist.destroy_process_group()
