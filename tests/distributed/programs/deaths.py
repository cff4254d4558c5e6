"""One rank dies of its own fault while the others wait for it."""

import ctypes
import os
import signal
import subprocess
import time

import torch
import torch.distributed as dist
from job import agree, classifier, main, train

VICTIM = int(os.environ.get("VICTIM", "1"))


class Normalize(torch.autograd.Function):
    """Scales a gradient in native code, with a buffer that was never set."""

    @staticmethod
    def forward(ctx, x, broken):
        ctx.broken = broken
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        if ctx.broken:
            ctypes.memset(None, 0, 64)
        return grad, None


def segfault_in_backward(rank):
    model = classifier()
    train(model, 3)
    out = model(torch.randn(8, 16))
    Normalize.apply(out, rank == VICTIM).square().mean().backward()
    dist.barrier()


def killed(rank):
    """kill -9 in the middle of the training."""
    model = classifier()
    train(model, 2)
    if rank == VICTIM:
        subprocess.Popen(["sh", "-c", f"sleep 0.2; kill -9 {os.getpid()}"], start_new_session=True)
    train(model, 100_000)


def slow_cleanup(rank):
    """The failed rank leaves its peers and then cleans up for three seconds: all others have died by then."""
    agree()
    try:
        if rank == VICTIM:
            raise ValueError("shard 3 has 0 rows")
        dist.all_reduce(torch.ones(8))
    finally:
        if rank == VICTIM:
            dist.destroy_process_group()
            time.sleep(3)


def prompt_exception(rank):
    agree()
    if rank == VICTIM:
        raise ValueError("shard 3 has 0 rows")
    dist.all_reduce(torch.ones(8))


def exits(rank):
    """A library calls _exit() without a message."""
    agree()
    if rank == VICTIM:
        os._exit(3)
    dist.all_reduce(torch.ones(8))


def exits_well(rank):
    """As programs do whose teardown hangs: no launcher takes status 0 for a failure."""
    agree()
    if rank == VICTIM:
        os._exit(0)
    dist.all_reduce(torch.ones(8))


def raised_everywhere(rank):
    """All ranks miss the same file; the others' paths differ by their rank."""
    agree()
    time.sleep(0.05 * rank)
    raise FileNotFoundError(f"no shard-{rank}.pt")


def terminated(rank):
    """A scheduler ends one process with SIGTERM."""
    agree()
    if rank == VICTIM:
        subprocess.run(["sh", "-c", f"kill -{signal.SIGTERM:d} {os.getpid()}"], check=False)
        time.sleep(5)
    dist.all_reduce(torch.ones(8))


def fault_everywhere(rank):
    """All ranks do the same wrong thing."""
    agree()
    ctypes.memset(None, 0, 64)


def fails_after_the_end(rank):
    """All collectives are done and the group is gone; then one rank cannot save its checkpoint."""
    agree()
    dist.barrier()
    if rank == VICTIM:
        dist.destroy_process_group()
        time.sleep(1)
        raise OSError(28, "No space left on device", "checkpoint.pt")


if __name__ == "__main__":
    main(
        segfault_in_backward, killed, slow_cleanup, prompt_exception, exits, exits_well, raised_everywhere, terminated,
        fault_everywhere, fails_after_the_end,
    )  # fmt: skip
