"""Replays a captured step and hands its output to a native writer."""

from __future__ import annotations

import ctypes
import io

import torch
from torch import nn


def write_record(sink: io.BytesIO, address: int, size: int) -> None:
    """Append the bytes at an address to the sink."""
    sink.write(ctypes.string_at(address, size))


@torch.no_grad()
def main() -> None:
    """Write the output of every replay."""
    torch.manual_seed(0)
    model = nn.Linear(256, 256).cuda()
    inputs = torch.zeros(64, 256, device="cuda")
    model(inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = model(inputs)
    sink = io.BytesIO()
    for step in range(8):
        inputs.fill_(float(step))
        graph.replay()
        torch.cuda.synchronize()
        write_record(sink, outputs.data_ptr(), outputs.nbytes)
    print("wrote", sink.tell(), "bytes")


if __name__ == "__main__":
    main()
