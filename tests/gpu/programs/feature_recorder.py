"""Run a model over a data set and print statistics of its layers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

TOKENS = 16384
INPUTS = 256
WIDTH = 1024
STEPS = 60
BUDGET = 2560 * 2**20


class Recorder:
    """Keeps what the chosen layers return."""

    def __init__(self, model: nn.Sequential, layers: tuple[int, ...]) -> None:
        self.maps: dict[int, list[torch.Tensor]] = {layer: [] for layer in layers}
        for layer in layers:
            model[layer].register_forward_hook(self.hook(layer))

    def hook(self, layer: int) -> Callable[[nn.Module, tuple[torch.Tensor, ...], torch.Tensor], None]:
        """Return the hook of one layer."""

        def record(module: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
            self.maps[layer].append(output.detach())

        return record

    def statistics(self) -> dict[int, float]:
        """Return the spread of each layer's latest output."""
        return {layer: outputs[-1].std().item() for layer, outputs in self.maps.items()}


def build() -> nn.Sequential:
    """Return the model."""
    return nn.Sequential(
        nn.Linear(INPUTS, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, 16)
    ).cuda()


@torch.no_grad()
def main() -> None:
    """Report every tenth batch."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(BUDGET / total)
    torch.manual_seed(61)
    model = build().eval()
    recorder = Recorder(model, layers=(0, 2))
    counts = torch.zeros(16, dtype=torch.long)
    for step in range(STEPS):
        batch = torch.randn(TOKENS, INPUTS).cuda()
        predictions = model(batch).argmax(dim=1)
        counts += torch.bincount(predictions.cpu(), minlength=16)
        if step % 10 == 0:
            print(f"step {step}: {recorder.statistics()}")
    print(counts.tolist())


if __name__ == "__main__":
    main()
