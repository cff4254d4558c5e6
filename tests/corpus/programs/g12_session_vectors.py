import random

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

N_ITEMS = 5000


class SessionDataset(Dataset):
    def __init__(self, n_sessions=641):
        rng = random.Random(3)
        self.sessions = [[rng.randrange(N_ITEMS) for _ in range(rng.randint(2, 30))] for _ in range(n_sessions)]

    def __len__(self):
        return len(self.sessions)

    def __getitem__(self, i):
        return torch.tensor(self.sessions[i])


def collate_sessions(batch):
    lengths = torch.tensor([len(s) for s in batch])
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)[:-1]])
    return torch.cat(batch), offsets


class SessionEncoder(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.items = nn.EmbeddingBag(N_ITEMS, dim, mode="max", include_last_offset=True)
        self.tower = nn.Sequential(nn.Linear(dim, 128), nn.ReLU(), nn.Linear(128, 32))

    def forward(self, item_ids, offsets):
        return nn.functional.normalize(self.tower(self.items(item_ids, offsets)), dim=-1)


@torch.no_grad()
def export_vectors(model, loader, path):
    model.eval()
    vectors = []
    for step, (item_ids, offsets) in enumerate(loader):
        vectors.append(model(item_ids, offsets))
        if step % 5 == 0:
            print(f"batch {step + 1}/{len(loader)}", flush=True)
    torch.save(torch.cat(vectors), path)
    print("saved", path)


if __name__ == "__main__":
    torch.manual_seed(0)
    loader = DataLoader(SessionDataset(), batch_size=32, collate_fn=collate_sessions)
    export_vectors(SessionEncoder(), loader, "/tmp/session_vectors.pt")
