import os
from collections import OrderedDict
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class ToyInstances(Dataset):
    """Feature maps with a few boxes; about one image in nine has no object in it."""

    def __init__(self, n=64):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        feat = torch.randn(8, 16, 16, generator=g)
        num = 0 if i % 9 == 4 else int(torch.randint(1, 4, (1,), generator=g))
        return feat, torch.rand(num, 4, generator=g), (torch.rand(num, 16, 16, generator=g) > 0.5).float()


class RoIHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Conv2d(8, 32, 3, padding=1)
        self.cls = nn.Linear(32, 2)
        self.box = nn.Linear(32, 4)
        self.mask = nn.Conv2d(32, 1, 1)

    def forward(self, feat, boxes, masks):
        x = F.relu(self.shared(feat))
        pooled = x.mean((2, 3))
        label = torch.tensor([1 if len(boxes) else 0])
        losses = {"loss_cls": F.cross_entropy(self.cls(pooled), label)}
        gt = boxes.mean(0, keepdim=True) if len(boxes) else torch.zeros(1, 4)
        weight = 1.0 if len(boxes) else 0.0
        losses["loss_bbox"] = weight * F.smooth_l1_loss(self.box(pooled), gt)
        mask_results = self.mask_forward_train(x, masks)
        if mask_results["loss_mask"] is not None:
            losses.update(mask_results)
        return losses

    def mask_forward_train(self, x, masks):
        if masks.shape[0] == 0:
            return dict(loss_mask=None)
        pred = self.mask(x).expand(masks.shape[0], 1, 16, 16)
        return dict(loss_mask=F.binary_cross_entropy_with_logits(pred[:, 0], masks))


def parse_losses(losses):
    log_vars = OrderedDict((k, v.mean()) for k, v in losses.items())
    loss = sum(v for k, v in log_vars.items() if "loss" in k)
    log_vars["loss"] = loss
    for name, value in log_vars.items():
        value = value.detach().clone()
        dist.all_reduce(value.div_(dist.get_world_size()))
        log_vars[name] = value.item()
    return loss, log_vars


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(RoIHead(), find_unused_parameters=True)
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    data = ToyInstances()
    loader = DataLoader(data, batch_size=1, sampler=DistributedSampler(data, shuffle=False),
                        collate_fn=lambda b: b[0])
    for it, (feat, boxes, masks) in enumerate(loader):
        losses = model(feat[None], boxes, masks)
        loss, log_vars = parse_losses(losses)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0:
            print(f"iter {it} " + " ".join(f"{k}: {v:.4f}" for k, v in log_vars.items()), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
