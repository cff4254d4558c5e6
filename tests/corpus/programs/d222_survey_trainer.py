import logging
import os
import tempfile
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
log = logging.getLogger("survey")

CONFIG = {
    "model": {"name": "CutoutCNN", "num_classes": 6, "width": 16},
    "train": {"epochs": 4, "batch_size": 64, "lr": 3e-3},
    "data": {"n_cutouts": 6000, "size": 24, "classes": "all"},
    "monitor": {"interval_s": 2.0},
}


class HostMonitor(threading.Thread):
    """Appends the load and the memory of this host to a csv file while a model trains."""

    def __init__(self, path, interval_s):
        super().__init__(name="HostMonitor")
        self.path = path
        self.interval_s = interval_s
        self.stopped = False

    def sample(self):
        with open("/proc/self/statm") as f:
            rss = int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return f"{time.time():.1f},{os.getloadavg()[0]:.2f},{rss // 2**20}\n"

    def run(self):
        while not self.stopped:
            with open(self.path, "a") as f:
                f.write(self.sample())
            time.sleep(self.interval_s)

    def stop(self):
        self.stopped = True
        self.join()


class CutoutDataset(Dataset):
    SUBTYPES = {"spiral": 0, "elliptical": 1, "irregular": 2, "merger": 3, "ring": 4, "star": 5, "artifact": 6}

    def __init__(self, cfg, seed=11):
        rng = np.random.default_rng(seed)
        names = list(self.SUBTYPES)
        freq = np.array([0.34, 0.3, 0.12, 0.08, 0.06, 0.0996, 0.0004])
        self.labels = rng.choice(len(names), size=cfg["n_cutouts"], p=freq / freq.sum())
        size = cfg["size"]
        yy, xx = np.mgrid[-1:1:size * 1j, -1:1:size * 1j]
        r = np.hypot(xx, yy)
        base = np.stack([np.cos((k + 1) * 3 * r) * np.exp(-2 * r) for k in range(len(names))])
        noise = rng.normal(0, 0.2, (cfg["n_cutouts"], size, size))
        self.images = (base[self.labels] + noise).astype(np.float32)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return torch.from_numpy(self.images[i])[None], int(self.labels[i])


class CutoutCNN(nn.Module):
    def __init__(self, num_classes, width):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4),
        )
        self.head = nn.Linear(2 * width * 16, num_classes)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


class Trainer:
    def __init__(self, model, cfg):
        self.model = model
        self.cfg = cfg
        self.opt = torch.optim.Adam(model.parameters(), lr=cfg["lr"])

    def run(self, loader):
        for epoch in range(self.cfg["epochs"]):
            total, n = 0.0, 0
            for step, (x, y) in enumerate(loader):
                loss = nn.functional.cross_entropy(self.model(x), y)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                total, n = total + loss.item(), n + 1
                if step % 20 == 0:
                    log.info("epoch %d step %d loss %.4f", epoch, step, total / n)


def train(cfg, results_dir):
    torch.manual_seed(5)
    data = CutoutDataset(cfg["data"])
    loader = DataLoader(data, batch_size=cfg["train"]["batch_size"], shuffle=True)
    model = CutoutCNN(cfg["model"]["num_classes"], cfg["model"]["width"])

    monitor = HostMonitor(os.path.join(results_dir, "host.csv"), cfg["monitor"]["interval_s"])
    monitor.start()

    trainer = Trainer(model, cfg["train"])
    trainer.run(loader)
    torch.save(model.state_dict(), os.path.join(results_dir, "weights.pth"))

    monitor.stop()
    log.info("finished, results in %s", results_dir)


if __name__ == "__main__":
    train(CONFIG, tempfile.mkdtemp(prefix="survey_"))
