import os
import threading

import numpy as np
import torch
import torch.multiprocessing as mp
import torch.nn as nn

OUT = "/tmp/d45_gallery_index"
SIDE, DIM = 32, 64


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4))
        self.head = nn.Linear(32 * 16, DIM)

    def forward(self, x):
        return nn.functional.normalize(self.head(self.conv(x).flatten(1)), dim=1)


def make_images(n, seed):
    rng = np.random.default_rng(seed)
    base = rng.normal(0, 1, (20, 3, SIDE, SIDE)).astype(np.float32)
    ids = rng.integers(0, 20, n)
    return base[ids] + rng.normal(0, 0.3, (n, 3, SIDE, SIDE)).astype(np.float32), ids


def extract_loop(index, weights, tasks, results, ready):
    torch.set_num_threads(1)
    model = Embedder().eval()
    model.load_state_dict(torch.load(weights))
    ready.put(index)
    while True:
        job = tasks.get()
        if job is None:
            break
        start, batch = job
        with torch.no_grad():
            feats = model(torch.from_numpy(batch))
        results.put((start, feats.numpy()))


class ExtractorPool:
    def __init__(self, weights, n_workers=2):
        self.weights, self.n_workers = weights, n_workers
        self.ctx = mp.get_context("spawn")
        self.tasks, self.results, self.ready = (self.ctx.Queue() for _ in range(3))
        self.group = None

    def launch(self):
        self.group = mp.spawn(
            extract_loop, args=(self.weights, self.tasks, self.results, self.ready),
            nprocs=self.n_workers, join=False)
        up = [self.ready.get() for _ in range(self.n_workers)]
        print(f"extractors up: {sorted(up)}", flush=True)

    def map(self, images, batch_size=64):
        starts = list(range(0, len(images), batch_size))
        for s in starts:
            self.tasks.put((s, images[s:s + batch_size]))
        out = np.empty((len(images), DIM), dtype=np.float32)
        for _ in starts:
            s, feats = self.results.get()
            out[s:s + len(feats)] = feats
        return out

    def close(self):
        for _ in range(self.n_workers):
            self.tasks.put(None)
        self.group.join()


def train_embedder(path, steps=60):
    torch.manual_seed(0)
    model = Embedder()
    images, ids = make_images(512, seed=1)
    images, ids = torch.from_numpy(images), torch.from_numpy(ids)
    head = nn.Linear(DIM, 20)
    opt = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=3e-3)
    for step in range(steps):
        pick = torch.randint(0, len(images), (64,))
        loss = nn.functional.cross_entropy(10 * head(model(images[pick])), ids[pick])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"embedder trained, loss {loss.item():.4f}", flush=True)
    torch.save(model.state_dict(), path)
    return model.eval()


def main():
    os.makedirs(OUT, exist_ok=True)
    weights = os.path.join(OUT, "embedder.pt")
    model = train_embedder(weights)

    pool = ExtractorPool(weights)
    starter = threading.Thread(target=pool.launch)
    starter.start()
    gallery, gallery_ids = make_images(2000, seed=1)
    queries, query_ids = make_images(100, seed=1)
    with torch.no_grad():
        q = model(torch.from_numpy(queries)).numpy()
    print("queries embedded:", q.shape, flush=True)
    starter.join()

    g = pool.map(gallery)
    np.save(os.path.join(OUT, "gallery.npy"), g)
    nearest = gallery_ids[(q @ g.T).argmax(1)]
    print("rank-1 accuracy:", float((nearest == query_ids).mean()))
    pool.close()


if __name__ == "__main__":
    main()
