import io
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Detections(Dataset):
    """Features of an image and its boxes; some images have no box."""

    def __init__(self, n=24):
        g = torch.Generator().manual_seed(3)
        self.features = torch.randn(n, 32, generator=g)
        self.boxes = [torch.rand(0 if i == 13 else 1 + i % 3, 4, generator=g) for i in range(n)]

    def __len__(self):
        return len(self.features)

    def __getitem__(self, i):
        return self.features[i], self.boxes[i]


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(32, 64), nn.ReLU())
        self.box_head = nn.Linear(64, 4)

    def training_step(self, batch):
        features, boxes = batch[0]
        if len(boxes) == 0:
            return torch.tensor([0.0], requires_grad=True)
        pred = self.box_head(self.backbone(features))
        return nn.functional.smooth_l1_loss(pred.expand_as(boxes), boxes)

    def forward(self, batch):
        return self.training_step(batch)


def fit(model, loader, epochs=2):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        for i, batch in enumerate(loader):
            loss = model(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if dist.get_rank() == 0:
                print(f"epoch {epoch} batch {i} loss {loss.item():.4f}", flush=True)
        save_checkpoint(model, epoch)


def save_checkpoint(model, epoch):
    dist.barrier()
    if dist.get_rank() == 0:
        buffer = io.BytesIO()
        torch.save(model.module.state_dict(), buffer)
        print(f"epoch {epoch} saved, {buffer.tell()} bytes", flush=True)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    data = Detections()
    sampler = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=1, sampler=sampler, collate_fn=list)
    torch.manual_seed(0)
    fit(DistributedDataParallel(Detector()), loader)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
