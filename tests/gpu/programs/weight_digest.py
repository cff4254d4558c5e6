"""Compare the checksums of a model's weights before and after a move."""

from __future__ import annotations

import ctypes
import zlib

import torch
from torch import nn


def digest(tensor: torch.Tensor) -> int:
    """Return the CRC of a tensor's bytes."""
    data = tensor.detach().contiguous()
    size = data.numel() * data.element_size()
    content = (ctypes.c_ubyte * size).from_address(data.data_ptr())
    return zlib.crc32(content)


def digests(model: nn.Module) -> dict[str, int]:
    """Return the checksum of every weight."""
    return {name: digest(value) for name, value in model.state_dict().items()}


def encoder() -> nn.Module:
    """Return the model to be checked."""
    return nn.Sequential(nn.Linear(512, 1024), nn.LayerNorm(1024), nn.GELU(), nn.Linear(1024, 512))


def main() -> None:
    """Load the weights, move the model and compare."""
    torch.manual_seed(7)
    model = encoder()
    expected = digests(model)
    print(f"{len(expected)} weights on the host")
    model = model.to("cuda")
    moved = digests(model)
    wrong = [name for name, value in moved.items() if value != expected[name]]
    print(f"weights that differ: {wrong}")


if __name__ == "__main__":
    main()
