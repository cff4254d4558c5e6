"""Trains an action model on recorded input sessions; a small C library keeps the event rings."""
import argparse
import ctypes
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn

SOURCE = r"""
#include <stdarg.h>
#include <stdlib.h>
#include <stdint.h>

typedef struct { uint32_t capabilities, length, capacity; float *events; } seat;

seat *seat_create(uint32_t capacity) {
    seat *s = calloc(1, sizeof(seat));
    s->capacity = capacity;
    s->events = calloc(capacity, sizeof(float));
    return s;
}
void seat_push(seat *s, float value) {
    s->events[s->length++ % s->capacity] = value;
}
float seat_mean(seat *s) {
    double total = 0;
    for (uint32_t i = 0; i < s->capacity; i++) total += s->events[i];
    return (float)(total / s->capacity);
}
uint32_t seat_capabilities(seat *s) { return s->capabilities; }
void seat_bind_capabilities(seat *s, ...) {
    va_list ap; uint32_t cap; va_start(ap, s);
    while ((cap = va_arg(ap, uint32_t)) != 0) s->capabilities |= cap;
    va_end(ap);
}
void seat_destroy(seat *s) { free(s->events); free(s); }
"""

CAP_POINTER, CAP_KEYBOARD, CAP_SCROLL = 1, 4, 16
CAPACITY = 64


def load_library():
    build = tempfile.mkdtemp(prefix="seats_")
    source, target = Path(build, "seats.c"), Path(build, "libseats.so")
    source.write_text(SOURCE)
    subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", source, "-o", target], check=True)
    lib = ctypes.CDLL(str(target))
    prototypes = {
        "seat_create": (ctypes.c_void_p, [ctypes.c_uint32]),
        "seat_push": (None, [ctypes.c_void_p, ctypes.c_float]),
        "seat_mean": (ctypes.c_float, [ctypes.c_void_p]),
        "seat_capabilities": (ctypes.c_uint32, [ctypes.c_void_p]),
        "seat_destroy": (None, [ctypes.c_void_p]),
    }
    for name, (restype, argtypes) in prototypes.items():
        getattr(lib, name).restype, getattr(lib, name).argtypes = restype, argtypes
    return lib


class Seat:
    def __init__(self, lib):
        self.lib, self.ptr = lib, lib.seat_create(CAPACITY)

    def push(self, values):
        for v in values:
            self.lib.seat_push(self.ptr, float(v))

    def mean(self):
        return self.lib.seat_mean(self.ptr)

    def bind(self, caps):
        func = self.lib.seat_bind_capabilities
        func.restype = None
        args = [ctypes.c_uint32(c) for c in caps] + [ctypes.c_uint32(0)]
        func(self.ptr, *args)
        return self.lib.seat_capabilities(self.ptr)

    def close(self):
        self.lib.seat_destroy(self.ptr)


def record_sessions(lib, rng, sessions):
    rows = []
    for s in range(sessions):
        seat, feats = Seat(lib), []
        for block in range(8):
            seat.push(rng.normal(s % 2, 1.0, CAPACITY))
            feats.append(seat.mean())
        seat.close()
        rows.append(feats)
    return torch.tensor(rows), torch.arange(sessions) % 2


def train(model, x, y, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(steps):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def replay(lib, model, rng):
    seat = Seat(lib)
    print("capabilities", hex(seat.bind([CAP_POINTER, CAP_KEYBOARD, CAP_SCROLL])), flush=True)
    seat.push(rng.normal(1, 1.0, CAPACITY))
    action = model(torch.full((1, 8), seat.mean())).argmax().item()
    seat.close()
    return action


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int, default=48)
    args = parser.parse_args()
    torch.manual_seed(0)
    lib, rng = load_library(), np.random.default_rng(0)
    x, y = record_sessions(lib, rng, args.sessions)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
    print(f"{args.sessions} sessions, loss {train(model, x, y, 60):.4f}", flush=True)
    print("replayed action", replay(lib, model, rng))


if __name__ == "__main__":
    main()
