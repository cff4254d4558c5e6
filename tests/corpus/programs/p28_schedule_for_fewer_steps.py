import math
import torch
import torch.nn as nn

torch.manual_seed(0)


class Config:
    epochs = 4
    batch = 24
    accumulate = 4
    lr = 0.01


def batches(x, y, size):
    order = torch.randperm(len(x))
    for start in range(0, len(x), size):
        pick = order[start:start + size]
        yield x[pick], y[pick]


def build(cfg, samples):
    model = nn.Sequential(nn.Linear(16, 64), nn.SiLU(), nn.Linear(64, 1))
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    updates = math.floor(samples / cfg.batch / cfg.accumulate) * cfg.epochs
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=cfg.lr, total_steps=updates)
    return model, opt, sched


def main(cfg):
    x = torch.randn(1000, 16)
    y = x.square().sum(1, keepdim=True)
    model, opt, sched = build(cfg, len(x))
    for epoch in range(cfg.epochs):
        per_epoch = math.ceil(len(x) / cfg.batch)
        for i, (a, b) in enumerate(batches(x, y, cfg.batch), 1):
            loss = nn.functional.mse_loss(model(a), b) / cfg.accumulate
            loss.backward()
            if i % cfg.accumulate == 0 or i == per_epoch:
                opt.step()
                opt.zero_grad()
                sched.step()
        print("epoch", epoch, "loss", round(loss.item(), 4), "lr", round(sched.get_last_lr()[0], 6), flush=True)


main(Config())
