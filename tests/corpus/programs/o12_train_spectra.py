"""Regression on simulated spectra; scalars go through the small C logger of the lab."""
import ctypes
import json
import os
import subprocess

import torch
from torch import nn

WORK = "/tmp/o12_spectra"
SOURCE = r"""
#include <stdlib.h>
#include <string.h>
typedef void (*sink_fn)(int step, const char *tag, double value);
struct row { int step; char tag[24]; double value; };
static struct row rows[64];
static int used, opened;
static sink_fn sink;

void slog_flush(void)
{
    for (int i = 0; i < used; i++)
        sink(rows[i].step, rows[i].tag, rows[i].value);
    used = 0;
}

int slog_open(sink_fn fn)
{
    sink = fn;
    if (!opened++)
        atexit(slog_flush);
    return 0;
}

void slog_scalar(int step, const char *tag, double value)
{
    struct row *r = &rows[used++];
    r->step = step;
    strncpy(r->tag, tag, sizeof r->tag - 1);
    r->value = value;
    if (used == 64)
        slog_flush();
}
"""
SINK = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_double)


def build_logger(folder):
    os.makedirs(folder, exist_ok=True)
    source, library = os.path.join(folder, "slog.c"), os.path.join(folder, "libslog.so")
    with open(source, "w") as f:
        f.write(SOURCE)
    subprocess.run(["gcc", "-O2", "-g", "-shared", "-fPIC", "-o", library, source], check=True)
    lib = ctypes.CDLL(library)
    lib.slog_open.argtypes = [SINK]
    lib.slog_open.restype = ctypes.c_int
    lib.slog_scalar.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_double]
    lib.slog_scalar.restype = None
    return lib


class ScalarLog:
    def __init__(self, folder):
        self.lib = build_logger(folder)
        self.path = os.path.join(folder, "scalars.jsonl")
        open(self.path, "w").close()
        self.sink = SINK(self._write)
        self.lib.slog_open(self.sink)

    def _write(self, step, tag, value):
        with open(self.path, "a") as f:
            f.write(json.dumps({"step": step, "tag": tag.decode(), "value": value}) + "\n")

    def scalar(self, step, tag, value):
        self.lib.slog_scalar(step, tag.encode(), value)


class SpectraNet(nn.Module):
    def __init__(self, bins=400):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(1, 8, 9, padding=4), nn.ReLU(), nn.MaxPool1d(4),
            nn.Conv1d(8, 16, 9, padding=4), nn.ReLU(), nn.AdaptiveAvgPool1d(16))
        self.head = nn.Linear(16 * 16, 2)

    def forward(self, x):
        return self.head(self.features(x.unsqueeze(1)).flatten(1))


def make_spectra(count, bins=400):
    axis = torch.linspace(0, 1, bins)
    centre = 0.1 + 0.8 * torch.rand(count, 1)
    width = 0.02 + 0.06 * torch.rand(count, 1)
    spectra = torch.exp(-((axis - centre) / width) ** 2) + 0.02 * torch.randn(count, bins)
    return spectra, torch.cat([centre, width * 10], dim=1)


def train(model, log, data, target, epochs=6, batch=128):
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    step = 0
    for epoch in range(epochs):
        for index in torch.randperm(len(data)).split(batch):
            loss = nn.functional.smooth_l1_loss(model(data[index]), target[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            log.scalar(step, "train/loss", loss.item())
            step += 1
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
    return step


def main():
    torch.manual_seed(3)
    log = ScalarLog(WORK)
    data, target = make_spectra(2500)
    model = SpectraNet()
    step = train(model, log, data, target)
    with torch.no_grad():
        test_data, test_target = make_spectra(500)
        error = (model(test_data) - test_target).abs().mean(0)
    log.scalar(step, "test/centre", error[0].item())
    log.scalar(step, "test/width", error[1].item())
    torch.save(model.state_dict(), os.path.join(WORK, "model.pt"))
    print(f"test error centre {error[0]:.4f} width {error[1]:.4f}")
    print("done", flush=True)


if __name__ == "__main__":
    main()
