"""Augmentation in C: the library enlarges the caller's buffer when the echo is longer."""

import ctypes
import os
import subprocess
import tempfile

import numpy as np
import torch
from torch import nn

SOURCE = r"""
#include <stdlib.h>
#include <string.h>
struct buffer { float *data; long size; long capacity; };
static void reserve(struct buffer *b, long size) {
    if (size <= b->capacity) return;
    b->data = realloc(b->data, size * sizeof(float));
    b->capacity = size;
}
void echo(struct buffer *b, long delay) {
    long size = b->size + delay;
    reserve(b, size);
    memset(b->data + b->size, 0, (size - b->size) * sizeof(float));
    for (long i = size - 1; i >= delay; i--) b->data[i] += 0.5f * b->data[i - delay];
    b->size = size;
}
"""


class Buffer(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_long), ("capacity", ctypes.c_long)]


def build():
    folder = tempfile.mkdtemp()
    source, library = os.path.join(folder, "echo.c"), os.path.join(folder, "libecho.so")
    with open(source, "w") as file:
        file.write(SOURCE)
    subprocess.run(["gcc", "-g", "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
    return ctypes.CDLL(library)


def augment(library, wave, delay):
    room = np.zeros(len(wave) + 400, dtype=np.float32)
    room[: len(wave)] = wave.numpy()
    buffer = Buffer(room.ctypes.data + 0, len(wave), len(room))
    library.echo(ctypes.byref(buffer), delay)
    return torch.from_numpy(room)[: buffer.size].clone()


def train(delays):
    library, model = build(), nn.Conv1d(1, 2, 5)
    for delay in delays:
        batch = [augment(library, torch.rand(2000), delay) for _ in range(8)]
        print(delay, model(torch.stack(batch)[:, None]).mean().item())


train([100, 300, 70_000])
