"""Runs a captured image normalization over a stream of frames."""

from __future__ import annotations

import torch
from torch import Tensor


class CapturedNormalizer:
    """Normalizes frames with a recorded graph."""

    def __init__(self, example: Tensor) -> None:
        self.frames = example
        self.result = self._normalize(self.frames)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.result = self._normalize(self.frames)

    @staticmethod
    def _normalize(frames: Tensor) -> Tensor:
        """Scale pixel values to the range of the model."""
        return (frames * 0.0078125).clamp(-1.0, 1.0)

    def run(self, frames: Tensor) -> Tensor:
        """Normalize the given frames."""
        self.frames = frames
        self.graph.replay()
        return self.result


def load_frames(seed: int) -> Tensor:
    """Return a batch of frames from the camera."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return torch.rand(32, 3, 512, 512, device="cuda", generator=generator)


def main() -> None:
    """Normalize several batches of frames."""
    batches = [load_frames(seed) for seed in range(1, 5)]
    normalizer = CapturedNormalizer(load_frames(0))
    total = 0.0
    for frames in batches:
        brightness = normalizer.run(frames).mean()
        total += brightness.item()
        del brightness
        torch.cuda.empty_cache()
    print("mean brightness", total / len(batches))


if __name__ == "__main__":
    main()
