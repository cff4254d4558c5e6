import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(8)
DEVICE = "cuda"
FINE, COARSE, SIZE = 12, 4, 64


def parent_table():
    parents = torch.arange(FINE) // 3
    parents[FINE - 1] += 1
    return parents


class SegNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU())
        self.fine = nn.Conv2d(32, FINE, 1)
        self.coarse = nn.Conv2d(32, COARSE, 1)

    def forward(self, x):
        h = self.stem(x)
        return self.fine(h), self.coarse(h)


def soft_dice(logits, target, eps=1e-6):
    p = logits.softmax(dim=1)
    t = target.permute(0, 3, 1, 2).to(p.dtype)
    inter = (p * t).sum(dim=(2, 3))
    return 1 - ((2 * inter + eps) / (p.sum(dim=(2, 3)) + t.sum(dim=(2, 3)) + eps)).mean()


def hierarchical_loss(fine_logits, coarse_logits, fine_ids, parents):
    coarse_ids = parents[fine_ids]
    fine_t, coarse_t = F.one_hot(fine_ids, FINE), F.one_hot(coarse_ids, COARSE)
    return soft_dice(fine_logits, fine_t) + 0.5 * soft_dice(coarse_logits, coarse_t)


def main():
    model = SegNet().to(DEVICE)
    parents = parent_table().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    history = []
    for step in range(6):
        images = torch.randn(4, 3, SIZE, SIZE, device=DEVICE)
        top = 10 if step < 2 else FINE
        fine_ids = torch.randint(0, top, (4, SIZE, SIZE), device=DEVICE)
        fine_logits, coarse_logits = model(images)
        loss = hierarchical_loss(fine_logits, coarse_logits, fine_ids, parents)
        history.append(loss.item())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    print([round(v, 4) for v in history])


main()
