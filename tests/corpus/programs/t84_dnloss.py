"""Train a small query detector on synthetic shapes with data parallelism (2 processes)."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Shapes(Dataset):
    """Images of a camera trap: most frames hold 1 to 4 boxes, the nightly ones hold none."""

    def __init__(self, n=256, night=(96, 160)):
        self.n, self.night = n, night

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        image = 0.1 * torch.randn(3, 32, 32, generator=g)
        count = int(torch.randint(1, 5, (1,), generator=g))
        if self.night[0] <= i < self.night[1] and i % 2:
            count = 0
        boxes = torch.rand(count, 4, generator=g) * 0.4 + 0.3
        for cx, cy, w, h in (boxes * 32).int().tolist():
            image[:, max(cy - h // 4, 0):cy + h // 4, max(cx - w // 4, 0):cx + w // 4] += 1.0
        return image, boxes


def collate(batch):
    return torch.stack([b[0] for b in batch]), [b[1] for b in batch]


class Detector(nn.Module):
    def __init__(self, queries=8, dim=48):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, dim, 3, 2, 1),
                                      nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(2))
        self.query = nn.Parameter(torch.randn(queries, dim) * 0.1)
        self.embed = nn.Linear(4, dim)
        self.attend = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.box = nn.Linear(dim, 4)
        self.obj = nn.Linear(dim, 1)

    def decode(self, q, memory):
        h, _ = self.attend(q, memory, memory)
        return {"boxes": self.box(q + h).sigmoid(), "logits": self.obj(q + h).squeeze(-1)}

    def forward(self, images, targets):
        memory = self.backbone(images).transpose(1, 2)
        out = self.decode(self.query.expand(len(images), -1, -1), memory)
        most = max(len(t) for t in targets)
        if most > 0:
            noisy = images.new_zeros(len(images), most, 4)
            for i, t in enumerate(targets):
                noisy[i, :len(t)] = (t + 0.05 * torch.randn_like(t)).clamp(0, 1)
            out["dn"] = self.decode(self.embed(noisy), memory)
        return out


class Criterion(nn.Module):
    def boxes_of(self, pred, targets):
        n = max(sum(len(t) for t in targets), 1)
        loss_l1 = loss_obj = 0.0
        for p, logit, t in zip(pred["boxes"], pred["logits"], targets):
            want = torch.zeros_like(logit)
            want[:len(t)] = 1.0
            loss_l1 = loss_l1 + (p[:len(t)] - t).abs().sum() / n
            loss_obj = loss_obj + F.binary_cross_entropy_with_logits(logit, want)
        return loss_l1, loss_obj / len(targets)

    def forward(self, out, targets):
        losses = {}
        losses["loss_l1"], losses["loss_obj"] = self.boxes_of(out, targets)
        if "dn" in out:
            losses["loss_l1_dn"], losses["loss_obj_dn"] = self.boxes_of(out["dn"], targets)
        return losses


@torch.no_grad()
def reduce_dict(losses):
    names = sorted(losses)
    values = torch.stack([losses[k].detach() for k in names])
    dist.all_reduce(values)
    return dict(zip(names, (values / dist.get_world_size()).tolist()))


def train_one_epoch(model, criterion, loader, opt, epoch):
    rank = dist.get_rank()
    for step, (images, targets) in enumerate(loader):
        losses = criterion(model(images, targets), targets)
        opt.zero_grad()
        sum(losses.values()).backward()
        opt.step()
        logged = reduce_dict(losses)
        if rank == 0 and step % 4 == 0:
            text = ", ".join(f"{k} {v:.3f}" for k, v in logged.items())
            print(f"epoch {epoch} step {step}: {text}", flush=True)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    data = Shapes()
    sampler = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=4, sampler=sampler, collate_fn=collate)
    model = DistributedDataParallel(Detector(), find_unused_parameters=True)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        train_one_epoch(model, Criterion(), loader, opt, epoch)
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), "/tmp/t84_dnloss_model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
