"""Measure the level of every frame of a set of recordings."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def frame_rms(signal, level, frames, stride_recording, stride_frame, WIDTH: tl.constexpr):
    """Write the root mean square of one frame of one recording."""
    recording = tl.program_id(0)
    frame = tl.program_id(1)
    lane = tl.arange(0, WIDTH)
    values = tl.load(signal + recording * stride_recording + frame * stride_frame + lane)
    power = tl.sum(values * values, axis=0) / WIDTH
    tl.store(level + recording * frames + frame, tl.sqrt(power))


def measure(signal: torch.Tensor) -> torch.Tensor:
    """Return the level of each frame; `signal` is (recordings, frames, width)."""
    recordings, frames, width = signal.shape
    level = torch.empty(recordings, frames, device=signal.device)
    if frames < 65536:
        grid = (recordings, frames)
    else:
        grid = (frames, recordings)
    frame_rms[grid](signal, level, frames, signal.stride(0), signal.stride(1), WIDTH=width)
    return level


def main() -> None:
    """Measure a set of short and a set of long recordings."""
    torch.manual_seed(9)
    for name, shape in {"short": (16, 8192, 64), "long": (4, 131072, 64)}.items():
        recordings = torch.randn(shape, device="cuda")
        level = measure(recordings)
        loudest = level.max().item()
        print(f"{name}: loudest frame {loudest:.3f}")


if __name__ == "__main__":
    main()
