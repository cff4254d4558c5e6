"""Score field recordings for bird species: the recordings lie in a shared ring,
worker processes take them from there, a watchdog stops clips that take too long."""
import threading
import time

import torch
import torch.multiprocessing as mp
from torch import nn

RATE, CLIPS, WORKERS, SPECIES = 16000, 24, 2, 9
EMPTY, FILLED, TAKEN = 0, 1, 2
BUDGET = 4.0  # seconds per clip
INPUT_GAIN = {6: 0.5, 13: 0.0, 20: 0.7}


class SpeciesNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(129, 32, 5, stride=2)
        self.out = nn.Linear(32, SPECIES)

    def forward(self, wave):
        spec = torch.stft(wave, 256, 128, window=torch.hann_window(256), return_complex=True)
        return self.out(self.conv(spec.abs().log1p()[None]).relu().mean(-1))[0].softmax(0)


def record(i):
    """One second from the field recorder."""
    g = torch.Generator().manual_seed(i)
    t = torch.arange(RATE) / RATE
    song = torch.sin(6.283 * (1800 + 90 * i) * t) * (torch.sin(6.283 * 5 * t) > 0)
    wave = 0.05 * song + 0.01 * torch.randn(RATE, generator=g)
    return wave * INPUT_GAIN.get(i, 1.0)


def level(wave, target=0.2):
    """Raise the gain in small steps until the clip is as loud as the training data."""
    while wave.pow(2).mean().sqrt() < target:
        wave = (wave * 1.1).clamp(-1, 1)
    return wave


class Ring:
    def __init__(self, ctx):
        self.waves = torch.zeros(CLIPS, RATE).share_memory_()
        self.state = torch.zeros(CLIPS, dtype=torch.int64).share_memory_()
        self.access = ctx.Lock()

    def fill(self):
        for i in range(CLIPS):
            self.waves[i] = record(i)
            self.state[i] = FILLED

    def take(self, on_start):
        with self.access:
            ready = (self.state == FILLED).nonzero().flatten().tolist()
            if not ready:
                return None, None
            slot = ready[0]
            self.state[slot] = TAKEN
            on_start(slot)
            wave = level(self.waves[slot].clone())
            self.state[slot] = EMPTY
        return slot, wave


def worker(rank, ring, clip_of, since, results):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = SpeciesNet().eval()

    def on_start(slot):
        since[rank] = time.time()
        clip_of[rank] = slot

    while True:
        slot, wave = ring.take(on_start)
        if slot is None:
            return
        with torch.no_grad():
            scores = net(wave)
        clip_of[rank] = -1
        results.put((slot, int(scores.argmax()), float(scores.max())))


def watchdog(procs, clip_of, since, results):
    while any(p.is_alive() for p in procs):
        for w, p in enumerate(procs):
            slot = int(clip_of[w])
            if slot >= 0 and p.is_alive() and time.time() - float(since[w]) > BUDGET:
                p.terminate()
                p.join()
                clip_of[w] = -1
                print(f"clip {slot}: over {BUDGET:.0f} s in worker {w}, skipped", flush=True)
                results.put((slot, -1, 0.0))
        time.sleep(0.5)


def main():
    ctx = mp.get_context("spawn")
    ring = Ring(ctx)
    ring.fill()
    clip_of = torch.full((WORKERS,), -1, dtype=torch.int64).share_memory_()
    since = torch.zeros(WORKERS, dtype=torch.float64).share_memory_()
    results = ctx.Queue()
    procs = [ctx.Process(target=worker, args=(w, ring, clip_of, since, results)) for w in range(WORKERS)]
    for p in procs:
        p.start()
    threading.Thread(target=watchdog, args=(procs, clip_of, since, results), daemon=True).start()

    table = {}
    while len(table) < CLIPS:
        slot, species, score = results.get()
        table[slot] = (species, score)
        print(f"clip {slot}: species {species} ({score:.2f}), {len(table)}/{CLIPS}", flush=True)
    for p in procs:
        p.join()
    print(f"{sum(s >= 0 for s, _ in table.values())} clips scored", flush=True)


if __name__ == "__main__":
    main()
