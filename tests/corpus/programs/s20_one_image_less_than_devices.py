"""A batch is handed to as many devices as were configured: there are more devices than images."""

import torch


def prepare(images, allocation):
    parts, current = [], 0
    for count in allocation:
        part = []
        for _ in range(count):
            part.append(images[current] / 255)
            current += 1
        parts.append(torch.stack(part))
    return parts


def train(batches, devices, size):
    allocation = [max(size // devices, 1)] * devices
    for images in batches:
        print([part.shape for part in prepare(images, allocation)])


batches = [[torch.ones(3, 8, 8) for _ in range(count)] for count in (4, 4, 2)]
train(batches, devices=4, size=4)
