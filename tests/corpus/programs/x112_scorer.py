"""Review scoring service: one front process, worker processes that hold the model."""
import argparse
import multiprocessing as mp
import time

import numpy as np
import torch
import torch.nn as nn

VOCAB = 4000


class ReviewScorer(nn.Module):
    def __init__(self, dim=256):
        super().__init__()
        self.embed = nn.EmbeddingBag(VOCAB, dim, mode="mean")
        self.head = nn.Sequential(
            nn.Linear(dim, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 5)
        )

    def forward(self, tokens):
        return self.head(self.embed(tokens)).softmax(-1)


class Worker(mp.Process):
    def __init__(self, name, model, inbox, outbox):
        super().__init__(name=name, daemon=True)
        self.model = model
        self.inbox = inbox
        self.outbox = outbox

    def run(self):
        while True:
            job = self.inbox.get()
            if job is None:
                return
            job_id, tokens = job
            with torch.inference_mode():
                probs = self.model(torch.from_numpy(tokens))
            stars = probs.argmax(-1) + 1
            self.outbox.put((job_id, float(stars.float().mean())))


class ScoringService:
    def __init__(self, model, workers):
        self.model = model
        self.inbox = mp.Queue()
        self.outbox = mp.Queue()
        self.pool = [Worker(f"scorer-{i}", model, self.inbox, self.outbox) for i in range(workers)]

    def warm_up(self, rounds=3):
        sample = torch.randint(0, VOCAB, (256, 80))
        with torch.inference_mode():
            for _ in range(rounds):
                begin = time.perf_counter()
                probs = self.model(sample)
                print(f"warm-up {1000 * (time.perf_counter() - begin):.1f} ms, "
                      f"mean confidence {probs.max(-1).values.mean():.3f}", flush=True)

    def start(self):
        for worker in self.pool:
            worker.start()
        print(f"{len(self.pool)} workers up", flush=True)

    def score(self, batches):
        for job_id, tokens in enumerate(batches):
            self.inbox.put((job_id, tokens))
        answers = {}
        while len(answers) < len(batches):
            job_id, stars = self.outbox.get()
            answers[job_id] = stars
        return [answers[i] for i in range(len(batches))]

    def stop(self):
        for _ in self.pool:
            self.inbox.put(None)
        for worker in self.pool:
            worker.join()


def load_model(seed):
    torch.manual_seed(seed)
    model = ReviewScorer()
    model.eval()
    return model


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--batches", type=int, default=6)
    ap.add_argument("--seed", type=int, default=3)
    args = ap.parse_args()

    torch.set_num_threads(2)
    service = ScoringService(load_model(args.seed), args.workers)
    service.warm_up()
    service.start()

    rng = np.random.default_rng(args.seed)
    batches = [rng.integers(0, VOCAB, size=(256, 80)) for _ in range(args.batches)]
    for i, stars in enumerate(service.score(batches)):
        print(f"batch {i}: {stars:.2f} stars", flush=True)
    service.stop()


if __name__ == "__main__":
    main()
