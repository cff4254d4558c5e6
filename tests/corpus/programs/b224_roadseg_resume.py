import logging
import os
import tempfile
from copy import deepcopy
from dataclasses import dataclass, replace

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
logger = logging.getLogger("roadseg")


@dataclass
class Config:
    save_dir: str
    total_epoch: int = 4
    base_lr: float = 0.05
    batch_size: int = 8
    num_class: int = 4
    load_ckpt_path: str = None
    resume_training: bool = True
    save_ckpt: bool = True


class RoadScenes(Dataset):
    def __init__(self, n, seed, num_class):
        g = torch.Generator().manual_seed(seed)
        coarse = torch.randint(0, num_class, (n, 1, 6, 8), generator=g).float()
        self.masks = nn.functional.interpolate(coarse, size=(48, 64)).squeeze(1).long()
        palette = torch.rand(num_class, 3, generator=torch.Generator().manual_seed(9))
        self.images = palette[self.masks].permute(0, 3, 1, 2) + 0.2 * torch.randn(n, 3, 48, 64, generator=g)

    def __len__(self):
        return len(self.masks)

    def __getitem__(self, i):
        return self.images[i], self.masks[i]


def conv_bn(cin, cout, stride=1):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class FastSeg(nn.Module):
    def __init__(self, num_class):
        super().__init__()
        self.stem = nn.Sequential(conv_bn(3, 16, 2), conv_bn(16, 32, 2))
        self.body = nn.Sequential(conv_bn(32, 48), conv_bn(48, 48))
        self.head = nn.Conv2d(48, num_class, 1)

    def forward(self, x):
        y = self.head(self.body(self.stem(x)))
        return nn.functional.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=False)


class SegTrainer:
    def __init__(self, config):
        torch.manual_seed(1)
        self.train_loader = DataLoader(RoadScenes(240, 1, config.num_class), config.batch_size, shuffle=True)
        self.val_loader = DataLoader(RoadScenes(48, 2, config.num_class), config.batch_size)
        self.model = FastSeg(config.num_class)
        self.loss_fn = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config.base_lr, momentum=0.9, weight_decay=1e-4)
        total_itrs = config.total_epoch * len(self.train_loader)
        self.scheduler = torch.optim.lr_scheduler.PolynomialLR(self.optimizer, total_itrs, power=0.9)
        self.best_score, self.cur_epoch = 0.0, 0
        self.load_ckpt(config)
        self.ema = deepcopy(self.model).eval()

    def load_ckpt(self, config):
        if not config.load_ckpt_path or not os.path.isfile(config.load_ckpt_path):
            logger.info("[!] Train from scratch")
            return
        checkpoint = torch.load(config.load_ckpt_path, map_location="cpu")
        self.model.load_state_dict(checkpoint["state_dict"])
        logger.info("Load model state dict from %s", config.load_ckpt_path)
        if config.resume_training:
            self.cur_epoch = checkpoint["cur_epoch"] + 1
            self.best_score = checkpoint["best_score"]
            self.optimizer.load_state_dict(checkpoint["optimizer"])
            self.scheduler.load_state_dict(checkpoint["scheduler"])
            logger.info("Resume training from %s", config.load_ckpt_path)

    def save_ckpt(self, config, save_best=False):
        model = self.ema if save_best else self.model
        torch.save({
            "cur_epoch": self.cur_epoch,
            "best_score": self.best_score,
            "state_dict": model.state_dict(),
            "optimizer": self.optimizer.state_dict() if not save_best else None,
            "scheduler": self.scheduler.state_dict() if not save_best else None,
        }, os.path.join(config.save_dir, "best.pth" if save_best else "last.pth"))

    def run(self, config):
        for self.cur_epoch in range(self.cur_epoch, config.total_epoch):
            loss = self.train_one_epoch()
            score = self.validate()
            logger.info("epoch %d/%d loss %.4f pixel acc %.4f", self.cur_epoch + 1, config.total_epoch, loss, score)
            if score > self.best_score:
                self.best_score = score
                if config.save_ckpt:
                    self.save_ckpt(config, save_best=True)
            if config.save_ckpt:
                self.save_ckpt(config)

    def train_one_epoch(self):
        self.model.train()
        total = 0.0
        for images, masks in self.train_loader:
            self.optimizer.zero_grad()
            loss = self.loss_fn(self.model(images), masks)
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            with torch.no_grad():
                for avg, cur in zip(self.ema.state_dict().values(), self.model.state_dict().values()):
                    avg.copy_(avg * 0.9 + cur * 0.1 if avg.is_floating_point() else cur)
            total += loss.item()
        return total / len(self.train_loader)

    @torch.no_grad()
    def validate(self):
        hits = [(self.ema(images).argmax(1) == masks).float().mean().item() for images, masks in self.val_loader]
        return sum(hits) / len(hits)


def main():
    with tempfile.TemporaryDirectory() as save_dir:
        config = Config(save_dir=save_dir)
        SegTrainer(config).run(config)
        logger.info("extending the schedule")
        config = replace(config, total_epoch=8, base_lr=0.02, load_ckpt_path=os.path.join(save_dir, "best.pth"))
        trainer = SegTrainer(config)
        trainer.run(config)
        logger.info("best pixel acc %.4f", trainer.best_score)


if __name__ == "__main__":
    main()
