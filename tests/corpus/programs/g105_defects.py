"""Surface defect segmentation with pixel- and image-level AUROC evaluated during training."""
import argparse
import resource

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


def limit_memory(megabytes):
    with open("/proc/self/statm") as f:
        used = int(f.read().split()[0]) * resource.getpagesize()
    limit = used + megabytes * 2 ** 20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


class TileDataset(Dataset):
    def __init__(self, n, size, seed):
        self.n, self.size, self.seed = n, size, seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 10000 + i)
        image = 0.4 + 0.1 * torch.randn(1, self.size, self.size, generator=g)
        mask = torch.zeros(1, self.size, self.size)
        if i % 2:
            y, x = torch.randint(0, self.size - 24, (2,), generator=g).tolist()
            image[:, y:y + 20, x:x + 20] += 0.35
            mask[:, y:y + 20, x:x + 20] = 1.0
        return image, mask


class AUROC:
    """Area under the ROC curve over everything that was passed to update()."""

    def __init__(self, name):
        self.name = name
        self.reset()

    def reset(self):
        self.scores, self.targets = [], []

    def update(self, scores, targets):
        self.scores.append(scores.flatten().double())
        self.targets.append(targets.flatten().double())

    def compute(self):
        scores, targets = torch.cat(self.scores), torch.cat(self.targets)
        hits = targets[scores.argsort(descending=True)]
        tpr = hits.cumsum(0) / hits.sum()
        fpr = (1 - hits).cumsum(0) / (1 - hits).sum()
        return torch.trapezoid(tpr, fpr).item()


class SegNet(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, dim, 5, stride=4, padding=2), nn.ReLU(),
                                  nn.Conv2d(dim, dim, 3, padding=1), nn.ReLU())
        self.head = nn.Conv2d(dim, 1, 1)

    def forward(self, x):
        return F.interpolate(self.head(self.down(x)), scale_factor=4, mode="bilinear", align_corners=False)


@torch.no_grad()
def evaluate(model, loader, image_metric, pixel_metric):
    model.eval()
    for images, masks in loader:
        scores = torch.sigmoid(model(images))
        pixel_metric.update(scores, masks)
        image_metric.update(scores.flatten(1).amax(1), masks.flatten(1).amax(1))
    model.train()
    return image_metric.compute(), pixel_metric.compute()


def train(model, train_loader, test_loader, steps, eval_every):
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    image_metric, pixel_metric = AUROC("image"), AUROC("pixel")
    step, best = 0, 0.0
    while step < steps:
        for images, masks in train_loader:
            logits = model(images)
            loss = F.binary_cross_entropy_with_logits(logits, masks, pos_weight=torch.tensor(20.0))
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % eval_every == 0:
                image_auc, pixel_auc = evaluate(model, test_loader, image_metric, pixel_metric)
                best = max(best, pixel_auc)
                print(f"step {step:4d} loss {loss.item():.4f} AUROC image {image_auc:.4f} "
                      f"pixel {pixel_auc:.4f} best {best:.4f}", flush=True)
            if step == steps:
                break


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=192)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--eval-every", type=int, default=8)
    parser.add_argument("--mem-limit-mb", type=int, default=900)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    limit_memory(args.mem_limit_mb)

    train_loader = DataLoader(TileDataset(64, args.size, 1), batch_size=4, shuffle=True)
    test_loader = DataLoader(TileDataset(48, args.size, 2), batch_size=4)
    train(SegNet(), train_loader, test_loader, args.steps, args.eval_every)
    print("done", flush=True)


if __name__ == "__main__":
    main()
