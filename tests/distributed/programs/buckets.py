"""DDP with each of its options; rank 1 faults in a bucket, at the gradient of a parameter."""

import torch
import torch.distributed as dist
from job import main
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from touch import PAGE, fill_heap, fill_holes, floats_at, leave_room, make_room, page_in, read_freed, touch

import pytracer

WIDTH = 96


class Net(nn.Module):
    """Three layers of 36 KiB each; the last one may be left out."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x, *, whole=True):
        x = self.second(self.first(x).relu())
        return self.third(x) if whole else x


def wrapped(kind=Net, bucket_cap_mb=0.05, **options):
    torch.manual_seed(0)
    fill_heap()
    return DistributedDataParallel(kind(), bucket_cap_mb=bucket_cap_mb, **options)


def step(model, **options):
    model.zero_grad()
    model(torch.randn(4, WIDTH), **options).square().mean().backward()


def layout(model):
    """For each bucket: index, address, size, and (parameter, offset) of each gradient in it."""
    from pytracer.record.torch.library import load_for_this_process

    names = {parameter._cdata: name for name, parameter in model.module.named_parameters()}
    buckets = load_for_this_process()[0].buckets(model.reducer)
    return [(i, addr, nbytes, [(names[p], offset) for p, offset, _ in held]) for i, addr, nbytes, held in buckets]


def fault_in(model, name, module="Net", check=True, **truth):
    """Faults 5000 bytes into the gradient of a parameter, which is a view of its bucket."""
    for index, addr, _, held in layout(model):
        offset = dict(held).get(name)
        if offset is None:
            continue
        if check:
            gradient = model.module.get_parameter(name).grad
            assert floats_at(addr + offset, 8) == gradient.flatten()[:8].tolist()
        at = -(-(addr + offset + 5000) // PAGE) * PAGE
        touch(at, kind="in-storage", bucket={"module": module, "index": index, "parameter": name}, base=hex(addr),
              offset=at - addr, **truth)  # fmt: skip
    raise AssertionError(f"{name} is in no bucket")


def train(rank, model, steps, **truth):
    for _ in range(steps):
        step(model)
    if rank == 1:
        fault_in(model, "second.weight", **truth)
    dist.barrier()


def default(rank):
    train(rank, wrapped(), 4, generation=1)


def before_rebuilding(rank):
    train(rank, wrapped(), 1, generation=0)


def static_graph(rank):
    train(rank, wrapped(static_graph=True), 4, generation=1)


def find_unused_parameters(rank):
    model = wrapped(find_unused_parameters=True)
    for i in range(4):
        step(model, whole=i % 2 == 0)
    if rank == 1:
        fault_in(model, "second.weight", generation=0)
    dist.barrier()


def no_sync(rank):
    model = wrapped()
    for _ in range(3):
        with model.no_sync():
            step(model)
        step(model)
    if rank == 1:
        fault_in(model, "second.weight", generation=1)
    dist.barrier()


def gradient_as_bucket_view(rank):
    model = wrapped(gradient_as_bucket_view=True)
    for _ in range(4):
        step(model)
    if rank == 1:
        gradient = model.module.second.weight.grad
        at = page_in(gradient, 3000)
        (index, addr, held), = [(i, a, h) for i, a, n, h in layout(model) if a <= at < a + n]  # fmt: skip
        assert dict(held)["second.weight"] + addr == gradient.data_ptr()
        touch(at, kind="in-storage", bucket={"module": "Net", "index": index, "parameter": "second.weight"},
              base=hex(addr), offset=at - addr, generation=1)  # fmt: skip
    dist.barrier()


def one_bucket():
    """After a step: the model, and its bucket before the rebuild, outside of the heap and below the reserved room."""
    step(DistributedDataParallel(nn.Linear(WIDTH, WIDTH)))  # imports of torch's would let the heap grow
    make_room()
    model = wrapped(gradient_as_bucket_view=True)
    step(model)
    (bucket,) = layout(model)
    return model, bucket


def old_generation(rank):
    """Rank 1 reads where a gradient was before DDP rebuilt its one bucket as three at other addresses."""
    model, (index, addr, _, held) = one_bucket()
    name = min(held, key=lambda item: item[1])[0]
    assert model.module.get_parameter(name).grad.data_ptr() == addr
    at = page_in(model.module.get_parameter(name).grad)
    leave_room()
    model(torch.randn(4, WIDTH))  # rebuilds
    if rank == 1:
        read_freed(at, bucket={"module": "Net", "index": index, "parameter": name}, base=hex(addr), offset=at - addr,
                   generation=0)  # fmt: skip
    dist.barrier()


def reused_address(rank):
    """The memory of an old bucket now belongs to another tensor, which is named, with the bucket as its earlier use."""
    model, (_, addr, nbytes, _) = one_bucket()
    leave_room()
    model(torch.randn(4, WIDTH))
    if rank == 1:
        fill_holes()
        caches = []  # each large enough for its own mapping, until one is where the bucket was
        while not caches or not addr <= page_in(caches[-1]) < addr + nbytes:
            caches.append(torch.zeros(5000))
            assert len(caches) < 64
        at, start = page_in(caches[-1]), caches[-1].data_ptr()
        touch(at, kind="in-storage", bucket=None, base=hex(start), offset=at - start,
              earlier="DDP bucket 0 of Net (generation 0)")  # fmt: skip
    dist.barrier()


def two_modules(rank):
    """Two modules of one class, and one of another; the fault is in the second one's bucket."""
    first, second = wrapped(), wrapped()
    third = wrapped(kind=lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH)))
    for _ in range(3):
        for model in (first, second, third):
            step(model)
    if rank == 1:
        fault_in(second, "third.weight", module="Net #2", generation=1)
    dist.barrier()


def joined(rank):
    """Rank 1 has fewer batches; after join() it sends zeros and faults in a bucket that it rebuilt meanwhile."""
    model = wrapped()
    with model.join():
        for _ in range(1 if rank else 4):
            step(model)
    if rank == 1:
        fault_in(model, "second.weight", check=False, generation=1)
    dist.barrier()


class _Halved:
    """A user's hook object: sends float16, and faults in the sent tensor in the third step."""

    def __init__(self, rank):
        self.rank, self.calls = rank, 0

    def __call__(self, group, bucket):
        self.calls += 1
        half = bucket.buffer().to(torch.float16).div_(dist.get_world_size())
        future = dist.all_reduce(half, async_op=True).get_future()
        if self.rank == 1 and self.calls >= 4 and bucket.index() == 0:
            future.wait()
            at = page_in(half, 2000)
            touch(at, kind="in-storage", bucket=None, base=hex(half.data_ptr()), offset=at - half.data_ptr(),
                  name="tensor of communication hook _Halved for DDP bucket 0 of Net (generation 1)")  # fmt: skip

        def back(future):
            return bucket.buffer().copy_(future.value()[0])

        return future.then(back)


def own_hook(rank):
    model = wrapped()
    hook = _Halved(rank)
    hook.__name__ = hook.__qualname__ = "_Halved"
    model.register_comm_hook(None, hook)
    for _ in range(3):
        step(model)
    dist.barrier()


def fp16_hook(rank):
    """Torch's own hook; the fault is in the bucket itself, the last collective was of the compressed tensor."""
    model = wrapped()
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    train(rank, model, 3, generation=1, check=False)


def builtin_fp16_hook(rank):
    model = wrapped()
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    train(rank, model, 3, generation=1, check=False)


def power_sgd(rank):
    model = wrapped(bucket_cap_mb=25)  # one bucket: with several, gloo's threads continue in any order
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    train(rank, model, 5, generation=1, check=False)


if __name__ == "__main__":
    assert pytracer.is_enabled()
    main(
        default, before_rebuilding, static_graph, find_unused_parameters, no_sync, gradient_as_bucket_view,
        old_generation, reused_address, two_modules, joined, own_hook, fp16_hook, builtin_fp16_hook, power_sgd,
    )  # fmt: skip
