"""Caption-supervised scene model: points come from memory, captions from one json-lines file per scene."""
import json
import os
import resource
import tempfile

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


def write_captions(folder, n_scenes=400, per_scene=5):
    for s in range(n_scenes):
        with open(os.path.join(folder, f"scene{s:04d}.jsonl"), "w") as f:
            for c in range(per_scene):
                f.write(json.dumps({"id": c, "tokens": [(s + c * k) % 97 for k in range(12)]}) + "\n")


class CaptionReader:
    """Keeps the offsets of the captions of a scene, so that one caption can be read at a time."""

    def __init__(self, path):
        self.file = open(path, "rb")
        self.offsets = []
        while True:
            pos = self.file.tell()
            if not self.file.readline():
                break
            self.offsets.append(pos)

    def get(self, i):
        self.file.seek(self.offsets[i % len(self.offsets)])
        return json.loads(self.file.readline())["tokens"]


class SceneCaptions(Dataset):
    def __init__(self, folder, n_scenes):
        self.folder, self.n_scenes = folder, n_scenes
        self.readers = {}

    def __len__(self):
        return self.n_scenes

    def __getitem__(self, idx):
        if idx not in self.readers:
            self.readers[idx] = CaptionReader(os.path.join(self.folder, f"scene{idx:04d}.jsonl"))
        tokens = self.readers[idx].get(idx)
        points = torch.randn(64, 3) + idx / self.n_scenes
        return points, torch.tensor(tokens)


class SceneModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.point_mlp = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 32))
        self.token_emb = nn.EmbeddingBag(97, 32)

    def forward(self, points, tokens):
        return nn.functional.cosine_similarity(self.point_mlp(points).amax(1), self.token_emb(tokens))


def main():
    # same limit as on the cluster nodes, scaled to the small number of scenes
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        write_captions(folder)
        loader = DataLoader(SceneCaptions(folder, 400), batch_size=8, shuffle=True, num_workers=2,
                            persistent_workers=True)
        model = SceneModel()
        opt = torch.optim.Adam(model.parameters(), lr=1e-3)
        for epoch in range(4):
            for it, (points, tokens) in enumerate(loader):
                loss = 1.0 - model(points, tokens).mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
                if it % 5 == 0:
                    print(f"epoch {epoch} it {it} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
