import torch
import torch.nn.functional as F

from .utils import reduce_mean


def run_stage(ddp, loader, lr, use_tiers):
    opt = torch.optim.Adam(ddp.parameters(), lr=lr)
    ddp.train()
    total, count = 0.0, 0
    for users, items, clicks in loader:
        loss = F.binary_cross_entropy_with_logits(ddp(users, items, use_tiers), clicks)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() * len(clicks)
        count += len(clicks)
    return reduce_mean(total, count)


@torch.no_grad()
def evaluate(model, loader, use_tiers):
    model.eval()
    total, count = 0.0, 0
    for users, items, clicks in loader:
        loss = F.binary_cross_entropy_with_logits(model(users, items, use_tiers), clicks)
        total += loss.item() * len(clicks)
        count += len(clicks)
    return reduce_mean(total, count)
