import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(11)
DEVICE = "cuda"
N_USERS, N_ITEMS, HISTORY = 2000, 800, 12


class Interactions(Dataset):
    def __init__(self, n=4096):
        g = torch.Generator().manual_seed(5)
        raw = torch.randint(1, N_ITEMS, (n, HISTORY), generator=g)
        raw[4000, 7] = N_ITEMS
        self.history = raw
        self.groups = torch.randint(0, N_USERS, (n, 3), generator=g)
        self.clicked = torch.randint(0, 2, (n,), generator=g).float()

    def __len__(self):
        return len(self.clicked)

    def __getitem__(self, i):
        return self.groups[i], self.history[i], self.clicked[i]


class TwoTower(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.user_bag = nn.EmbeddingBag(N_USERS, dim, mode="mean")
        self.item_bag = nn.EmbeddingBag(N_ITEMS, dim, mode="mean")
        self.mlp = nn.Sequential(nn.Linear(2 * dim, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, groups, history):
        x = torch.cat([self.user_bag(groups), self.item_bag(history)], dim=1)
        return self.mlp(x).squeeze(1)


def train():
    loader = DataLoader(Interactions(), batch_size=256, shuffle=False, pin_memory=True)
    model = TwoTower().to(DEVICE)
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    running = torch.zeros((), device=DEVICE)
    for groups, history, clicked in loader:
        groups = groups.to(DEVICE, non_blocking=True)
        history = history.to(DEVICE, non_blocking=True)
        clicked = clicked.to(DEVICE, non_blocking=True)
        out = model(groups, history)
        loss = criterion(out, clicked)
        running += loss.detach()
    average = running.item() / len(loader)
    print("first pass", average)
    optimizer.zero_grad()


train()
