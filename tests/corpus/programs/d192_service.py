import logging
import multiprocessing as mp
import queue
import sys
import time
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s [%(processName)s] %(message)s")
log = logging.getLogger("inspect")


@dataclass
class JobSpec:
    job_id: str
    model: str
    epochs: int = 3
    batch_size: int = 16
    loader: dict = field(default_factory=lambda: {"num_workers": 2})


class PartImages(Dataset):
    def __init__(self, count, size, seed):
        rng = np.random.default_rng(seed)
        self.images = rng.normal(0.5, 0.1, size=(count, 1, size, size)).astype(np.float32)
        for i in range(0, count, 9):
            y, x = rng.integers(4, size - 8, size=2)
            self.images[i, 0, y:y + 5, x:x + 5] += 0.6

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = torch.from_numpy(self.images[index])
        if torch.rand(()) < 0.5:
            image = torch.flip(image, dims=(2,))
        return image


class Reconstructor(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(1, width, 3, 2, 1), nn.ReLU(),
                                 nn.Conv2d(width, width, 3, 2, 1), nn.ReLU())
        self.dec = nn.Sequential(nn.ConvTranspose2d(width, width, 2, 2), nn.ReLU(),
                                 nn.ConvTranspose2d(width, 1, 2, 2))

    def forward(self, x):
        return self.dec(self.enc(x))


def train_model(spec):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dataset = PartImages(240, 48, seed=5)
    loader = DataLoader(dataset, batch_size=spec.batch_size, shuffle=True, **spec.loader)
    model = Reconstructor(16)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    log.info("job %s: %d images, %d batches per epoch", spec.job_id, len(dataset), len(loader))
    for epoch in range(spec.epochs):
        losses = []
        for images in loader:
            loss = nn.functional.mse_loss(model(images), images)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        log.info("job %s: epoch %d loss %.5f", spec.job_id, epoch, float(np.mean(losses)))
    return float(np.mean(losses))


def training_routine(jobs, results):
    while True:
        try:
            spec = jobs.get(timeout=2)
        except queue.Empty:
            log.info("no more jobs")
            return
        log.info("job %s: start training of %s", spec.job_id, spec.model)
        results.put((spec.job_id, train_model(spec)))


class Scheduler:
    def __init__(self):
        self.jobs = mp.Queue()
        self.results = mp.Queue()
        self.process = mp.Process(target=training_routine, name="training",
                                  args=(self.jobs, self.results), daemon=True)

    def submit(self, spec):
        self.jobs.put(spec)

    def start(self):
        self.process.start()
        log.info("training process started, pid %d", self.process.pid)

    def wait(self, expected):
        finished = {}
        while len(finished) < expected:
            try:
                job_id, loss = self.results.get(timeout=1)
                finished[job_id] = loss
            except queue.Empty:
                if not self.process.is_alive():
                    break
        self.process.join()
        return finished


def main():
    scheduler = Scheduler()
    specs = [JobSpec("a17", "padim-lite"), JobSpec("a18", "padim-lite", epochs=2)]
    for spec in specs:
        scheduler.submit(spec)
    scheduler.start()
    started = time.time()
    finished = scheduler.wait(len(specs))
    log.info("%d of %d jobs finished in %.1fs", len(finished), len(specs), time.time() - started)
    if len(finished) != len(specs):
        log.error("training process ended with exit code %s", scheduler.process.exitcode)
        return 1
    for job_id, loss in finished.items():
        log.info("job %s: final loss %.5f", job_id, loss)
    return 0


if __name__ == "__main__":
    sys.exit(main())
