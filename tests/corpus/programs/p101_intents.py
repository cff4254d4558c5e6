"""Intent classifier for the support inbox: train on the base intents, then evaluate every tenant's intent set."""
import argparse
import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

KERNEL_SOURCE = r"""
#include <math.h>
#include <stdint.h>
#include <xmmintrin.h>

static float row_max(const float *row, int64_t cols) {
    int64_t i = 4;
    __m128 best = _mm_load_ps(row);
    for (; i + 4 <= cols; i += 4)
        best = _mm_max_ps(best, _mm_load_ps(row + i));
    float lanes[4], m;
    _mm_storeu_ps(lanes, best);
    m = fmaxf(fmaxf(lanes[0], lanes[1]), fmaxf(lanes[2], lanes[3]));
    for (; i < cols; ++i)
        m = fmaxf(m, row[i]);
    return m;
}

void softmax_rows(const float *in, float *out, int64_t rows, int64_t cols, float temperature) {
    for (int64_t r = 0; r < rows; ++r) {
        const float *x = in + r * cols;
        float *y = out + r * cols;
        float m = row_max(x, cols), total = 0.0f;
        for (int64_t c = 0; c < cols; ++c) {
            y[c] = expf((x[c] - m) / temperature);
            total += y[c];
        }
        for (int64_t c = 0; c < cols; ++c)
            y[c] /= total;
    }
}
"""


def build_kernel(folder):
    source = Path(folder) / "softmax_rows.c"
    source.write_text(KERNEL_SOURCE)
    target = source.with_suffix(".so")
    subprocess.run(["gcc", "-O2", "-g", "-shared", "-fPIC", "-o", str(target), str(source), "-lm"], check=True)
    lib = ctypes.CDLL(str(target))
    lib.softmax_rows.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_float]
    lib.softmax_rows.restype = None
    return lib


class IntentModel(nn.Module):
    def __init__(self, features, hidden, intents):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, intents)

    def forward(self, x):
        return self.head(self.body(x))


class TemperatureScaler:
    def __init__(self, lib, temperature=1.5):
        self.lib = lib
        self.temperature = temperature

    def probabilities(self, logits):
        logits = logits.detach().contiguous()
        probs = torch.empty_like(logits)
        rows, cols = logits.shape
        self.lib.softmax_rows(logits.data_ptr(), probs.data_ptr(), rows, cols, self.temperature)
        return probs


def make_tenant(name, intents, messages, features, generator):
    centres = torch.randn(intents, features, generator=generator) * 1.5
    labels = torch.randint(0, intents, (messages,), generator=generator)
    x = centres[labels] + torch.randn(messages, features, generator=generator)
    return name, intents, TensorDataset(x, labels)


def fit(model, dataset, epochs, batch_size):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loss_fn = nn.CrossEntropyLoss()
    for _ in range(epochs):
        for x, y in DataLoader(dataset, batch_size=batch_size, shuffle=True):
            optimizer.zero_grad()
            loss = loss_fn(model(x), y)
            loss.backward()
            optimizer.step()
    return loss.item()


def calibration(model, scaler, dataset, batch_size):
    confidence = correct = seen = 0
    for x, y in DataLoader(dataset, batch_size=batch_size):
        probs = scaler.probabilities(model(x))
        top, guess = probs.max(dim=1)
        confidence += top.sum().item()
        correct += (guess == y).sum().item()
        seen += len(y)
    return confidence / seen, correct / seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--features", type=int, default=48)
    args = parser.parse_args()
    generator = torch.manual_seed(11)
    scaler = TemperatureScaler(build_kernel(tempfile.mkdtemp(prefix="intents_")))
    tenants = [make_tenant(n, k, 1280, args.features, generator)
               for n, k in (("base", 16), ("airline", 24), ("bank", 30), ("telecom", 20))]
    for name, intents, dataset in tenants:
        model = IntentModel(args.features, 96, intents)
        loss = fit(model, dataset, args.epochs, args.batch_size)
        confidence, accuracy = calibration(model, scaler, dataset, args.batch_size)
        print(f"{name:8s} intents {intents:3d} loss {loss:.3f} accuracy {accuracy:.3f} "
              f"confidence {confidence:.3f}", flush=True)
    print("all tenants evaluated")


if __name__ == "__main__":
    main()
