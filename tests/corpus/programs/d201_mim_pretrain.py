import math
import time

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

CFG = dict(
    img_size=32,
    patch=4,
    dim=96,
    depth=2,
    heads=4,
    mask_ratio=0.6,
    batch_size=16,
    accumulation_steps=4,
    epochs=2,
    base_lr=4e-4,
    warmup_epochs=1,
    clip_grad=5.0,
    amp=True,
    print_freq=8,
)


class TextureImages(Dataset):
    def __init__(self, n, size, seed=0):
        g = torch.Generator().manual_seed(seed)
        yy, xx = torch.meshgrid(torch.linspace(0, 1, size), torch.linspace(0, 1, size), indexing="ij")
        f = torch.rand(n, 3, generator=g) * 12 + 2
        p = torch.rand(n, 3, generator=g) * math.tau
        self.images = torch.sin(f[:, :, None, None] * xx + p[:, :, None, None]) * torch.cos(f.flip(1)[:, :, None, None] * yy)

    def __len__(self):
        return self.images.shape[0]

    def __getitem__(self, i):
        return self.images[i]


class MaskedImageModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.patch = cfg["patch"]
        self.n = (cfg["img_size"] // cfg["patch"]) ** 2
        d = cfg["dim"]
        self.embed = nn.Conv2d(3, d, cfg["patch"], stride=cfg["patch"])
        self.pos = nn.Parameter(torch.zeros(1, self.n, d))
        self.mask_token = nn.Parameter(torch.zeros(1, 1, d))
        layer = nn.TransformerEncoderLayer(d, cfg["heads"], d * 2, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, cfg["depth"], enable_nested_tensor=False)
        self.head = nn.Linear(d, 3 * cfg["patch"] ** 2)
        nn.init.trunc_normal_(self.pos, std=0.02)
        nn.init.trunc_normal_(self.mask_token, std=0.02)

    def forward(self, x, mask):
        z = self.embed(x).flatten(2).transpose(1, 2)
        w = mask.unsqueeze(-1).to(z.dtype)
        z = z * (1 - w) + self.mask_token.to(z.dtype) * w
        z = self.head(self.blocks(z + self.pos))
        target = nn.functional.unfold(x, self.patch, stride=self.patch).transpose(1, 2)
        return ((z - target).abs() * w).sum() / (w.sum() * target.shape[-1] + 1e-5)


def random_mask(batch, n, ratio):
    idx = torch.rand(batch, n).argsort(1)
    return (idx < int(n * ratio)).float()


def lr_at(step, total, warm, base):
    if step < warm:
        return base * (step + 1) / warm
    return base * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, total - warm)))


def train_one_epoch(cfg, model, loader, optimizer, scaler, epoch):
    model.train()
    optimizer.zero_grad()
    accum = cfg["accumulation_steps"]
    updates = len(loader) // accum
    start = time.time()
    loss_sum, norm = 0.0, 0.0
    for idx, images in enumerate(loader):
        mask = random_mask(images.shape[0], model.n, cfg["mask_ratio"])
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=cfg["amp"]):
            loss = model(images, mask)
        loss = loss / accum
        scaler.scale(loss).backward()
        if cfg["clip_grad"]:
            scaler.unscale_(optimizer)
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), cfg["clip_grad"])
        if (idx + 1) % accum == 0:
            step = epoch * updates + (idx + 1) // accum
            for group in optimizer.param_groups:
                group["lr"] = lr_at(step, cfg["epochs"] * updates, cfg["warmup_epochs"] * updates, cfg["base_lr"])
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        loss_sum += loss.item() * accum
        if idx % cfg["print_freq"] == 0:
            print(f"Train: [{epoch}/{cfg['epochs']}][{idx}/{len(loader)}] "
                  f"lr {optimizer.param_groups[0]['lr']:.6f} loss {loss_sum / (idx + 1):.4f} "
                  f"grad_norm {float(norm):.4f} loss_scale {scaler.get_scale():.1f}", flush=True)
    print(f"EPOCH {epoch} training takes {time.time() - start:.1f}s", flush=True)


def main():
    torch.manual_seed(7)
    loader = DataLoader(TextureImages(256, CFG["img_size"]), CFG["batch_size"], shuffle=True, drop_last=True)
    model = MaskedImageModel(CFG)
    print("number of params:", sum(p.numel() for p in model.parameters()), flush=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=CFG["base_lr"], weight_decay=0.05, betas=(0.9, 0.999))
    scaler = torch.amp.GradScaler("cpu", enabled=CFG["amp"])
    print("Start training", flush=True)
    for epoch in range(CFG["epochs"]):
        train_one_epoch(CFG, model, loader, optimizer, scaler, epoch)
    print("Training done", flush=True)


if __name__ == "__main__":
    main()
