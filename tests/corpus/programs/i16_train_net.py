"""Detection training with validation every few iterations (torchrun, 2 processes)."""
import datetime
import logging

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
logger = logging.getLogger("train_net")


def get_rank():
    return dist.get_rank() if dist.is_initialized() else 0


def is_main_process():
    return get_rank() == 0


def synchronize():
    if dist.get_world_size() > 1:
        dist.barrier()


def build_loader(n, batch_size, seed):
    g = torch.Generator().manual_seed(seed)
    data = TensorDataset(torch.randn(n, 3, 32, 32, generator=g), torch.rand(n, 4, generator=g))
    return DataLoader(data, batch_size=batch_size, sampler=DistributedSampler(data))


class BoxRegressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2))
        self.box = nn.Linear(32, 4)

    def forward(self, images):
        return self.box(self.backbone(images).mean(dim=(2, 3))).sigmoid()


def accumulate_predictions(predictions):
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, predictions)
    if is_main_process():
        return torch.cat([p for part in gathered for p in part])


def inference(model, data_loader):
    model.eval()
    predictions = []
    with torch.no_grad():
        for images, _ in data_loader:
            predictions.append(model(images))
    synchronize()
    predictions = accumulate_predictions(predictions)
    if is_main_process():
        logger.info("evaluated %d images", len(predictions))


def do_train(model, data_loader, val_data_loader, optimizer, checkpoint_period=8):
    max_iter = len(data_loader)
    for iteration, (images, boxes) in enumerate(data_loader, 1):
        loss = nn.functional.smooth_l1_loss(model(images), boxes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if iteration % checkpoint_period == 0 or iteration == max_iter:
            if is_main_process():
                logger.info("iter %d loss %.4f, evaluating on validation data set", iteration, loss.item())
                inference(model.module, val_data_loader)
            model.train()
            synchronize()


def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=15))
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = DistributedDataParallel(BoxRegressor())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    do_train(model, build_loader(320, 8, seed=1), build_loader(64, 8, seed=2), optimizer)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
