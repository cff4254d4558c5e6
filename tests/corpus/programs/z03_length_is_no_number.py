"""The predicted durations are NaN after the loss has diverged: so is the length of the mask."""

import torch


def sequence_mask(length, max_length=None):
    max_length = length.max() if max_length is None else max_length
    positions = torch.arange(max_length, dtype=length.dtype)
    return positions.unsqueeze(0) < length.unsqueeze(1)


def synthesise(durations):
    lengths = torch.exp(durations).sum(1)
    return sequence_mask(lengths).sum()


print(synthesise(torch.randn(2, 8)))
print(synthesise(torch.full((2, 8), float("nan"))))
