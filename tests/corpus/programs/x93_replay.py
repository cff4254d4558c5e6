"""Off-policy learner: actor processes push their transitions through a ring in shared memory."""
import argparse
import ctypes
import multiprocessing
import os
import subprocess
import tempfile
import time

import numpy as np
import torch
from torch import nn

RING_C = r"""
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct { uint64_t written; uint64_t slots; uint64_t width; char pad[40]; } header_t;
typedef struct { header_t *head; float *data; uint64_t taken; } ring_t;

ring_t *ring_open(const char *path, uint64_t slots, uint64_t width) {
    size_t bytes = sizeof(header_t) + slots * width * sizeof(float);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, bytes)) return NULL;
    header_t *head = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (head == MAP_FAILED) return NULL;
    memset(head, 0, sizeof *head);
    head->slots = slots;
    head->width = width;
    ring_t *ring = malloc(sizeof *ring);
    *ring = (ring_t){head, (float *)(head + 1), 0};
    return ring;
}

void ring_push(ring_t *ring, const float *row) {
    header_t *head = ring->head;
    uint64_t at = __atomic_fetch_add(&head->written, 1, __ATOMIC_ACQ_REL) % head->slots;
    memcpy(ring->data + at * head->width, row, head->width * sizeof(float));
}

uint64_t ring_drain(ring_t *ring, float *out) {
    header_t *head = ring->head;
    uint64_t count = __atomic_load_n(&head->written, __ATOMIC_ACQUIRE) - ring->taken;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = (ring->taken + i) % head->slots;
        memcpy(out + i * head->width, ring->data + at * head->width, head->width * sizeof(float));
    }
    ring->taken += count;
    return count;
}
"""
WIDTH, SLOTS = 12, 8192


def load_library(folder):
    path = os.path.join(folder, "libring.so")
    if not os.path.exists(path):
        subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", "-o", path, "-x", "c", "-"],
                       input=RING_C, text=True, check=True)
    lib = ctypes.CDLL(path)
    lib.ring_open.restype = ctypes.c_void_p
    lib.ring_open.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64]
    lib.ring_push.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    lib.ring_drain.restype = ctypes.c_uint64
    lib.ring_drain.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return lib


class Ring:
    def __init__(self, folder):
        self.lib = load_library(folder)
        self.handle = self.lib.ring_open(os.path.join(folder, "ring").encode(), SLOTS, WIDTH)

    def drain(self):
        rows = np.empty((SLOTS, WIDTH), dtype=np.float32)
        count = self.lib.ring_drain(self.handle, rows.ctypes.data)
        return torch.from_numpy(rows[:count])


def act(folder, seed, seconds):
    ring = Ring(folder)
    rng = np.random.default_rng(seed)
    state = rng.normal(size=WIDTH).astype(np.float32)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        state = (0.9 * state + 0.1 * rng.normal(size=WIDTH)).astype(np.float32)
        ring.lib.ring_push(ring.handle, state.ctypes.data)
        time.sleep(0.001)


def update(model, optimizer, rows):
    loss = nn.functional.mse_loss(model(rows[:, :-1]), rows[:, -1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--second-actor", type=int, default=4, help="round in which it joins")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(WIDTH - 1, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    start = multiprocessing.get_context("spawn").Process
    with tempfile.TemporaryDirectory(prefix="replay_") as folder:
        ring, seen = Ring(folder), 0
        start(target=act, args=(folder, 1, 30.0), daemon=True).start()
        for step in range(args.rounds):
            if step == args.second_actor:
                start(target=act, args=(folder, 2, 30.0), daemon=True).start()
            rows = ring.drain()
            while len(rows) < 500:
                time.sleep(0.05)
                rows = torch.cat([rows, ring.drain()])
            seen += len(rows)
            loss = update(model, optimizer, rows)
            print(f"round {step}: {len(rows)} new rows, {seen} so far, loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
