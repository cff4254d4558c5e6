"""Semantic segmentation of driving scans with class balanced sampling of the frames."""
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

LABELS = {0: "unlabeled", 1: "road", 2: "building", 3: "car", 4: "vegetation", 5: "motorcyclist", 6: "person"}
IGNORED = [0]
SHARE = {"01": [0.05, 0.45, 0.2, 0.1, 0.2, 0.0, 0.0],
         "02": [0.05, 0.40, 0.2, 0.1, 0.22, 0.0, 0.03],
         "08": [0.05, 0.40, 0.2, 0.1, 0.2, 0.02, 0.03]}


class Scans(Dataset):
    def __init__(self, sequences, frames_per_seq, points):
        rng = np.random.default_rng(11)
        self.scans, self.labels = [], []
        for seq in sequences:
            for _ in range(frames_per_seq):
                lab = rng.choice(len(LABELS), size=points, p=SHARE[seq])
                xyz = rng.normal(size=(points, 3)) + lab[:, None] * np.array([0.9, -0.4, 0.3])
                self.scans.append(xyz.astype(np.float32))
                self.labels.append(lab)
        self.label_values = np.array(sorted(LABELS))
        self.ignored_labels = np.array(IGNORED)
        self.num_classes = len(LABELS)
        self.potentials = torch.rand(len(self.scans)) * 0.1 + 0.1
        self.class_frames = self.find_class_frames()

    def find_class_frames(self):
        frames = []
        for value in self.label_values:
            if value in self.ignored_labels:
                frames.append(torch.zeros((0,), dtype=torch.int64))
                continue
            has = [i for i, lab in enumerate(self.labels) if np.any(lab == value)]
            frames.append(torch.tensor(has, dtype=torch.int64))
        return frames

    def __len__(self):
        return len(self.scans)

    def __getitem__(self, i):
        return torch.from_numpy(self.scans[i]), torch.from_numpy(self.labels[i])


class ScanSampler(Sampler):
    def __init__(self, dataset, steps, balanced):
        self.dataset, self.N, self.balanced = dataset, steps, balanced

    def __iter__(self):
        if not self.balanced:
            yield from torch.randint(len(self.dataset), (self.N,)).tolist()
            return
        gen_indices = []
        for i, value in enumerate(self.dataset.label_values):
            if value in self.dataset.ignored_labels:
                continue
            class_potentials = self.dataset.potentials[self.dataset.class_frames[i]]
            used_classes = self.dataset.num_classes - len(self.dataset.ignored_labels)
            class_n = self.N // used_classes + 1
            if class_n < class_potentials.shape[0]:
                _, class_indices = torch.topk(class_potentials, class_n, largest=False)
            else:
                class_indices = torch.zeros((0,), dtype=torch.int64)
                while class_indices.shape[0] < class_n:
                    new_class_inds = torch.randperm(class_potentials.shape[0])
                    class_indices = torch.cat((class_indices, new_class_inds), dim=0)
                class_indices = class_indices[:class_n]
            class_indices = self.dataset.class_frames[i][class_indices]
            gen_indices.append(class_indices)
            self.dataset.potentials[class_indices] += torch.rand(class_indices.shape[0]) * 0.1 + 0.1
        gen_indices = torch.cat(gen_indices)
        yield from gen_indices[torch.randperm(gen_indices.shape[0])][:self.N].tolist()

    def __len__(self):
        return self.N


class PointNet(nn.Module):
    def __init__(self, classes, width=48):
        super().__init__()
        self.local = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, classes))

    def forward(self, xyz):
        f = self.local(xyz)
        g = f.amax(1, keepdim=True).expand_as(f)
        return self.head(torch.cat([f, g], -1))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--sequences", default="01,02")
    ap.add_argument("--epochs", type=int, default=5)
    ap.add_argument("--warmup", type=int, default=2, help="epochs with uniform sampling")
    ap.add_argument("--steps", type=int, default=96)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = Scans(args.sequences.split(","), 40, 400)
    net = PointNet(data.num_classes)
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    for epoch in range(args.epochs):
        sampler = ScanSampler(data, args.steps, balanced=epoch >= args.warmup)
        loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=0)
        total = 0.0
        for xyz, lab in loader:
            loss = F.cross_entropy(net(xyz).flatten(0, 1), lab.flatten(), ignore_index=IGNORED[0])
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"epoch {epoch} {'balanced' if sampler.balanced else 'uniform'} loss {total / len(loader):.4f}", flush=True)
    print("saved", sum(p.numel() for p in net.parameters()), "weights")


if __name__ == "__main__":
    main()
