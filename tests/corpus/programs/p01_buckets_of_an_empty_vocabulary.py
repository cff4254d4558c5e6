import os
import torch
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(3)


@torch.jit.script
def hash_tokens(words: list[str], buckets: int) -> list[int]:
    out: list[int] = []
    for word in words:
        h = 7
        for c in word:
            h = (h * 31 + ord(c)) & 0x7FFFFFFF
        out.append(h % buckets)
    return out


def read_config(path):
    cfg = {"embedding": "64", "oov": "0.02", "vocab": "40"}
    if os.path.exists(path):
        cfg.update(line.strip().split("=") for line in open(path) if "=" in line)
    return cfg


class Reviews(Dataset):
    def __init__(self, cfg):
        self.lines = ["the film was %s and the %s was slow" % (a, b) for a in ("good", "long", "fine") for b in ("cast", "end", "plot")]
        self.known = {"the": 0, "film": 1, "was": 2, "and": 3}
        self.oov = int(int(cfg["vocab"]) * float(cfg["oov"]))

    def __len__(self):
        return len(self.lines) * 20

    def __getitem__(self, i):
        words = self.lines[i % len(self.lines)].split()
        ids = [self.known.get(w, -1) for w in words]
        rest = hash_tokens([w for w, k in zip(words, ids) if k < 0], self.oov)
        ids = [k if k >= 0 else len(self.known) + rest.pop(0) for k in ids]
        return torch.tensor(ids), i % 2


cfg = read_config("reviews.cfg")
data = Reviews(cfg)
emb = torch.nn.Embedding(int(cfg["vocab"]), int(cfg["embedding"]))
head = torch.nn.Linear(int(cfg["embedding"]), 2)
opt = torch.optim.Adam([*emb.parameters(), *head.parameters()])
for epoch in range(2):
    for ids, y in DataLoader(data, batch_size=16, shuffle=True, num_workers=2):
        loss = torch.nn.functional.cross_entropy(head(emb(ids).mean(1)), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("epoch", epoch, float(loss))
