"""Keyword spotting on long recordings: framing in numpy, scoring in torch."""
import queue
import threading

import numpy as np
import torch
import torch.nn as nn
from numpy.lib.stride_tricks import as_strided


class Recording:
    def __init__(self, seconds, rate=16000, seed=0):
        rng = np.random.default_rng(seed)
        self.rate = rate
        self.wave = rng.standard_normal(seconds * rate, dtype=np.float32)


class Framer:
    """Overlapping windows of a waveform without copying it."""

    def __init__(self, window=400, hop=160):
        self.window, self.hop = window, hop
        self.taper = np.hanning(window).astype(np.float32)

    def frames(self, wave):
        count = 1 + (len(wave) - self.window) // self.hop
        step = wave.strides[0]
        return as_strided(wave, (count, self.window),
                          (self.hop * wave.itemsize * step, step), writeable=False)

    def features(self, wave):
        windowed = self.frames(wave) * self.taper
        return np.log(np.square(windowed).mean(1) + 1e-6)


class Prefetcher(threading.Thread):
    def __init__(self, recordings, framer):
        super().__init__(name="framer", daemon=True)
        self.recordings, self.framer = recordings, framer
        self.out = queue.Queue(maxsize=2)

    def run(self):
        for rec in self.recordings:
            self.out.put(torch.from_numpy(self.framer.features(rec.wave)))
        self.out.put(None)


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(1, 8, 11, padding=5), nn.ReLU(), nn.Conv1d(8, 1, 1))
    recordings = (Recording(seconds, seed=seconds) for seconds in (60, 300, 900))
    loader = Prefetcher(recordings, Framer())
    loader.start()
    while (energy := loader.out.get()) is not None:
        with torch.no_grad():
            score = model(energy[None, None]).sigmoid().max()
        print(f"{energy.numel()} frames, best score {score:.3f}", flush=True)


if __name__ == "__main__":
    main()
