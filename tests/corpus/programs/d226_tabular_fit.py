import csv
import logging
import queue
import tempfile
import threading
from pathlib import Path

import numpy as np
import torch
from torch import nn

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
log = logging.getLogger("tabular")

NUMERIC = ["age", "income", "balance", "tenure", "visits"]
CATEGORY = ["plan"]
TARGET = "churned"


def write_partitions(root, n_parts=12, rows=1500, seed=8):
    rng = np.random.default_rng(seed)
    plans = ["free", "basic", "plus", "pro", "enterprise"]
    share = [0.5, 0.2998, 0.15, 0.05, 0.0002]
    for p in range(n_parts):
        with open(root / f"part-{p:04d}.csv", "w", newline="") as f:
            out = csv.writer(f)
            out.writerow([*NUMERIC, *CATEGORY, TARGET])
            for _ in range(rows):
                nums = rng.normal(size=len(NUMERIC)).round(4)
                plan = rng.choice(plans, p=share)
                y = int(nums[1] - nums[3] + (plan == "free") + rng.normal() > 0)
                out.writerow([*nums, plan, y])


def build_metadata(files):
    vocab = {k: set() for k in CATEGORY}
    for path in files:
        with open(path, newline="") as f:
            for row in csv.DictReader(f):
                for k in CATEGORY:
                    vocab[k].add(row[k])
    return {k: sorted(v) for k, v in vocab.items()}


class BatchProvider:
    """Reads the partitions on a thread, so that the next batches are ready when the trainer wants them."""

    def __init__(self, files, metadata, batch_size, buffer=8):
        self.files = files
        self.metadata = metadata
        self.batch_size = batch_size
        self.queue = queue.Queue(maxsize=buffer)
        self.producer = None

    def encode(self, rows):
        nums = torch.tensor([[float(r[k]) for k in NUMERIC] for r in rows])
        cats = torch.tensor([[vocab.index(r[k]) for k, vocab in self.metadata.items()] for r in rows])
        target = torch.tensor([float(r[TARGET]) for r in rows])
        return {"num": nums, "cat": cats, "target": target}

    def produce(self):
        rows = []
        for path in self.files:
            with open(path, newline="") as f:
                for row in csv.DictReader(f):
                    rows.append(row)
                    if len(rows) == self.batch_size:
                        self.queue.put(self.encode(rows))
                        rows = []
        self.queue.put(None)

    def start_epoch(self):
        self.producer = threading.Thread(target=self.produce, name="batch-producer", daemon=True)
        self.producer.start()

    def next_batch(self):
        return self.queue.get()


class Combiner(nn.Module):
    def __init__(self, metadata, hidden=64):
        super().__init__()
        self.embed = nn.ModuleList(nn.Embedding(len(v), 4) for v in metadata.values())
        self.norm = nn.BatchNorm1d(len(NUMERIC))
        self.mlp = nn.Sequential(
            nn.Linear(len(NUMERIC) + 4 * len(CATEGORY), hidden), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1),
        )

    def forward(self, batch):
        cats = [e(batch["cat"][:, i]) for i, e in enumerate(self.embed)]
        return self.mlp(torch.cat([self.norm(batch["num"]), *cats], 1)).squeeze(1)


class Trainer:
    def __init__(self, model, lr=1e-3):
        self.model = model
        self.opt = torch.optim.Adam(model.parameters(), lr=lr)

    def train_epoch(self, provider, epoch):
        provider.start_epoch()
        step, running = 0, 0.0
        while True:
            batch = provider.next_batch()
            if batch is None:
                break
            loss = nn.functional.binary_cross_entropy_with_logits(self.model(batch), batch["target"])
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            running = loss.item() if step == 0 else 0.95 * running + 0.05 * loss.item()
            step += 1
            if step % 50 == 0:
                log.info("epoch %d step %d loss %.4f", epoch, step, running)
        return running


def main():
    torch.manual_seed(3)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="tabular_") as tmp:
        root = Path(tmp)
        write_partitions(root)
        log.info("dataset written to %s", root)
        files = sorted(root.glob("part-*.csv"))
        metadata = build_metadata(files[:1])
        log.info("metadata %s", metadata)
        provider = BatchProvider(files, metadata, batch_size=32)
        trainer = Trainer(Combiner(metadata))
        for epoch in range(3):
            loss = trainer.train_epoch(provider, epoch)
            log.info("epoch %d finished, loss %.4f", epoch, loss)
        torch.save(trainer.model.state_dict(), root / "model.pt")
    log.info("training complete")


if __name__ == "__main__":
    main()
