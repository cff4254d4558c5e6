import torch
import torch.nn as nn

RATE, WINDOW, HOP = 16_000, 400, 160


class Recording:
    """A recording of the archive: what its header says, and the samples that are there."""

    def __init__(self, name, seconds, kept=1.0, seed=0):
        self.name, self.seconds = name, seconds
        gen = torch.Generator().manual_seed(seed)
        self.samples = torch.randn(int(seconds * RATE * kept), generator=gen)

    @property
    def frames(self):
        return int(self.seconds * RATE - WINDOW) // HOP + 1


class Loudness(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(WINDOW))

    def forward(self, samples, frames: int):
        framed = samples.as_strided((frames, WINDOW), (HOP, 1))
        power = (framed * self.window).square().mean(-1)
        return 10 * torch.log10(power + 1e-9)


class Archive:
    def __init__(self):
        self.model = torch.compile(Loudness(), dynamic=False)

    def measure(self, recording):
        with torch.inference_mode():
            curve = self.model(recording.samples, recording.frames)
        print(recording.name, len(curve), "frames", round(float(curve.mean()), 2), "dB", flush=True)


if __name__ == "__main__":
    archive = Archive()
    archive.measure(Recording("jingle", seconds=20))
    archive.measure(Recording("concert", seconds=7200, kept=0.004, seed=1))
