"""Missing timestamps are the smallest int32; the direction they are divided by is -1 for some rows."""

import torch


def load(rows):
    stamps = torch.arange(rows, dtype=torch.int32) * 60
    stamps[rows // 2] = torch.iinfo(torch.int32).min
    return stamps


def bucket(stamps, direction):
    return torch.div(stamps, direction, rounding_mode="trunc")


def batches(stamps, size):
    for start in range(0, len(stamps), size):
        yield stamps[start : start + size]


counts = torch.zeros(1, dtype=torch.int64)
for stamps in batches(load(4096), 512):
    direction = torch.where(torch.arange(len(stamps)) % 2 == 0, -1, 1).to(torch.int32)
    counts += bucket(stamps, direction).clamp(0, 10).sum()
print(counts)
