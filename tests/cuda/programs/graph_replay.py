"""A CUDA graph is captured and replayed. The first word is what happens to its static input between two replays.

kept: nothing. deleted: the only reference is. reallocated: another tensor gets the memory. resized: its storage is.
overwritten: passed to an operator that launches no kernel, then deleted. reset: the graph itself.
The second word is how the process ends: well, error (700 at the next wait), or fault (the host reads the memory).
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import torch
from fake import control


def capture(keep: dict[str, Any]) -> torch.cuda.CUDAGraph:
    """Captures static * weight + 1."""
    graph = torch.cuda.CUDAGraph()
    keep["weight"] = torch.ones(1 << 18, device="cuda")
    keep["static"] = torch.ones(1 << 18, device="cuda")
    keep["shape"] = torch.ones(1 << 19, device="cuda")
    with torch.cuda.graph(graph):
        like = torch.empty_like(keep["shape"]).zero_()  # takes the tensor, uses its size only
        keep["out"] = keep["static"] * keep["weight"] + 1 + like[0]
    return graph


def end(keep: dict[str, Any], how: str, addr: int) -> None:
    """Ends as the second word specifies."""
    if how == "error":
        control("fault_in_next_kernel", 700)
        keep["weight"].mul_(2)
        torch.cuda.synchronize()
    elif how == "fault":
        ctypes.string_at(addr, 4)


def main(fate: str, how: str) -> None:
    """Two replays, with the change of the input in between."""
    keep: dict[str, Any] = {}
    graph = capture(keep)
    graph.replay()
    torch.cuda.synchronize()
    addr = keep["static"].data_ptr()
    if fate in ("deleted", "reallocated"):
        del keep["static"]
    if fate == "reallocated":
        keep["taker"] = torch.empty(1 << 18, device="cuda")
    if fate == "resized":
        keep["static"].untyped_storage().resize_(0)
    if fate == "overwritten":
        del keep["shape"]
    if fate == "reset":
        addr = keep["out"].data_ptr()
        graph.reset()
        del keep["out"]
    else:
        for _ in range(2):
            graph.replay()  # after
    torch.cuda.synchronize()
    end(keep, how, addr)


if __name__ == "__main__":
    main(*sys.argv[1:])
