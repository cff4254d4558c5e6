"""Cut a long signal into overlapping frames and compute their energy."""

from __future__ import annotations

import cupy
import torch
from cupy.lib.stride_tricks import as_strided

WINDOW = 1024
HOP = 256


def frames(signal: cupy.ndarray) -> torch.Tensor:
    """Return a view of overlapping frames of a signal."""
    count = (len(signal) - WINDOW) // HOP + 1
    step = signal.strides[0]
    shape = (count, WINDOW)
    windows = as_strided(signal, shape, (HOP * step * signal.itemsize, step))
    return torch.from_dlpack(windows)


def main() -> None:
    """Print the energy of the frames of a synthetic recording."""
    signal = cupy.arange(1 << 26, dtype=cupy.float32)
    signal *= 0.01
    cupy.sin(signal, out=signal)
    view = frames(signal)
    print(f"{view.shape[0]} frames of {view.shape[1]} samples")
    energy = torch.linalg.vector_norm(view, dim=1)
    print(f"loudest frame: {int(energy.argmax())}")


if __name__ == "__main__":
    main()
