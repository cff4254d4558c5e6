import argparse
import logging
import os
import queue
import tempfile
import threading
import time

import numpy as np
import torch
import torch.nn as nn

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("radar_occupancy")

CHIRPS, SAMPLES = 32, 64


def record_traces(root, traces, frames):
    rng = np.random.default_rng(11)
    for t in range(traces):
        with open(os.path.join(root, f"trace_{t:02d}.iq"), "wb") as f:
            for _ in range(frames):
                chirps = CHIRPS - rng.binomial(3, 0.001)
                iq = rng.normal(0, 200, size=(chirps, SAMPLES, 2)).astype("<i2")
                target = rng.integers(0, 16)
                f.write(np.array([target, iq.nbytes], dtype="<u4").tobytes())
                f.write(iq.tobytes())


class TraceReader:
    def __init__(self, root, batch_size):
        self.paths = sorted(os.path.join(root, p) for p in os.listdir(root) if p.endswith(".iq"))
        self.batch_size = batch_size

    def frames(self):
        for path in self.paths:
            with open(path, "rb") as f:
                while True:
                    head = f.read(8)
                    if not head:
                        break
                    target, length = np.frombuffer(head, dtype="<u4")
                    iq = np.frombuffer(f.read(int(length)), dtype="<i2")
                    iq = iq.reshape(CHIRPS, SAMPLES, 2).astype(np.float32)
                    yield iq[..., 0] + 1j * iq[..., 1], int(target)

    def __iter__(self):
        spectra, targets = [], []
        for iq, target in self.frames():
            doppler = np.abs(np.fft.fft2(iq)).astype(np.float32)
            spectra.append(np.log1p(doppler))
            targets.append(target)
            if len(spectra) == self.batch_size:
                yield np.stack(spectra)[:, None], np.array(targets)
                spectra, targets = [], []


class Prefetch:
    def __init__(self, iterable, size=4):
        self.iterable = iterable
        self.size = size

    def _fill(self, buffer):
        for item in self.iterable:
            buffer.put(item)
        buffer.put(None)

    def __iter__(self):
        buffer = queue.Queue(maxsize=self.size)
        threading.Thread(target=self._fill, args=(buffer,), name="prefetch", daemon=True).start()
        while True:
            item = buffer.get()
            if item is None:
                return
            yield item


class OccupancyNet(nn.Module):
    def __init__(self, classes=16):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, classes))

    def forward(self, x):
        return self.layers(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--traces", type=int, default=6)
    parser.add_argument("--frames", type=int, default=160)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as root:
        record_traces(root, args.traces, args.frames)
        loader = Prefetch(TraceReader(root, args.batch_size))
        model = OccupancyNet()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        step = 0
        for epoch in range(args.epochs):
            started = time.time()
            for spectra, targets in loader:
                loss = nn.functional.cross_entropy(model(torch.from_numpy(spectra)),
                                                   torch.from_numpy(targets))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                if step % 10 == 0:
                    log.info("step %d loss %.4f", step, loss.item())
            log.info("epoch %d finished in %.1fs", epoch, time.time() - started)
        log.info("training complete after %d steps", step)


if __name__ == "__main__":
    main()
