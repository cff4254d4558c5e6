"""A transformer trained with DDP on two ranks; on rank 1, native code reads a gradient bucket that DDP has released.

    pytracer run -- torchrun --nproc-per-node 2 examples/ddp_use_after_free.py

The bug is a real one. With `gradient_as_bucket_view=True` every `.grad` is a view of DDP's bucket, and at the start of
the second forward DDP releases its first buckets and creates new ones in the order in which gradients became ready.
An address kept from the first iteration, as by the native monitor here, then points to released memory.

The C library maps blocks above 32 MiB one by one and unmaps them when they are released. One of the new buckets, 1 MB
smaller than the old one, may be mapped into the same hole, but at its upper end: the rows that are read here are at the
lower one, so the late read faults. With smaller buckets the same bug silently reads whatever is there now.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 6
WORDS = 36000  # the embedding's gradient takes 37 MB
SPECIAL_WORDS = slice(16, 64)  # mask, separator and the like: the rows that the monitor watches


class Transformer(nn.Module):
    """A small language model with tied embeddings."""

    def __init__(self, width: int = 256, layers: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width)
        layer = nn.TransformerEncoderLayer(width, nhead=4, dim_feedforward=4 * width, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(self.encoder(self.embedding(tokens)), self.embedding.weight)


class NativeMonitor:
    """Watches gradients from C: keeps their addresses, which is the bug."""

    def __init__(self) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise SystemExit("this example compiles a small C file: install gcc or another C compiler")
        directory = Path(tempfile.gettempdir(), f"pytracer-example-{os.getuid()}")
        directory.mkdir(mode=0o700, exist_ok=True)
        library = directory / "libgrad_monitor.so"  # stays: a report names functions by reading it
        source = Path(__file__).with_name("grad_monitor.c")
        subprocess.run([compiler, "-O1", "-g", "-fPIC", "-shared", str(source), "-o", str(library), "-lm"], check=True)
        self.lib = ctypes.CDLL(str(library))
        self.lib.monitor_watch.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self.lib.monitor_total.restype = ctypes.c_double

    def watch(self, gradient: torch.Tensor) -> None:
        self.lib.monitor_watch(gradient.data_ptr(), gradient.numel())

    def total(self) -> float:
        return float(self.lib.monitor_total())


class LogGradients(torch.autograd.Function):
    """Passes activations through; on the way back it logs what the monitor sees."""

    @staticmethod
    def forward(ctx, activations: torch.Tensor, monitor: NativeMonitor | None) -> torch.Tensor:
        ctx.monitor = monitor
        return activations.view_as(activations)

    @staticmethod
    def backward(ctx, gradient: torch.Tensor):
        if ctx.monitor is not None:
            total = ctx.monitor.total()
            print(f"gradient magnitude of the last step: {total:.1f}", flush=True)
        return gradient, None


def train(rank: int) -> None:
    torch.manual_seed(rank)
    model = Transformer()
    with torch.no_grad():
        model(torch.randint(0, WORDS, (4, 32)))  # does it run at all?
    model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    monitor = NativeMonitor() if rank == 1 else None
    for step in range(STEPS):
        tokens = torch.randint(0, WORDS, (4, 32))
        logits = LogGradients.apply(model(tokens), monitor)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.roll(-1, 1).flatten())
        mean_loss = loss.detach() / dist.get_world_size()
        dist.all_reduce(mean_loss)
        loss.backward()
        if step == 0 and monitor is not None:
            monitor.watch(model.module.embedding.weight.grad[SPECIAL_WORDS])
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"step {step}: loss {mean_loss.item():.3f}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        train(dist.get_rank())
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main()
