import argparse
import logging
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

logging.basicConfig(format="%(asctime)s - %(message)s", level=logging.INFO)
logger = logging.getLogger("med3d")

CLASSES = ["liver", "kidney", "spleen"]


def convert_volumes(raw_root, count, size):
    rng = np.random.default_rng(11)
    grid = np.stack(np.mgrid[0:size, 0:size, 0:size]).astype(np.float32)
    for organ in CLASSES:
        for part in ("imagesTr", "labelsTr"):
            os.makedirs(os.path.join(raw_root, organ, "CT_ABD", part))
        for k in range(count):
            center = rng.uniform(size * 0.3, size * 0.7, 3)[:, None, None, None]
            radii = rng.uniform(size * 0.12, size * 0.25, 3)[:, None, None, None]
            label = ((((grid - center) / radii) ** 2).sum(0) < 1).astype(np.uint8)
            image = (60.0 * label + 25.0 * rng.standard_normal(label.shape)).astype(np.float32)
            name = "case_%03d.npy" % k
            np.save(os.path.join(raw_root, organ, "CT_ABD", "imagesTr", name), image)
            np.save(os.path.join(raw_root, organ, "CT_ABD", "labelsTr", name), label)
    logger.info("converted %d cases to %s", count * len(CLASSES), os.path.basename(raw_root))


class VolumeDataset(Dataset):
    def __init__(self, paths, mode="train", data_type="Tr"):
        self.image_paths, self.label_paths = [], []
        self.mode = mode
        for path in paths:
            label_dir = os.path.join(path, "labels" + data_type)
            if os.path.exists(label_dir):
                for name in sorted(os.listdir(label_dir)):
                    self.label_paths.append(os.path.join(label_dir, name))
                    self.image_paths.append(os.path.join(path, "images" + data_type, name))

    def __len__(self):
        return len(self.label_paths)

    def __getitem__(self, i):
        image = torch.from_numpy(np.load(self.image_paths[i])).unsqueeze(0)
        label = torch.from_numpy(np.load(self.label_paths[i])).unsqueeze(0).float()
        image = (image - image.mean()) / image.std()
        if self.mode == "train" and torch.rand(()) < 0.5:
            image, label = image.flip(-1), label.flip(-1)
        return image, label


class PromptSegNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.down = nn.Sequential(nn.Conv3d(2, width, 3, padding=1), nn.GroupNorm(4, width), nn.ReLU(), nn.MaxPool3d(2))
        self.mid = nn.Sequential(nn.Conv3d(width, width, 3, padding=1), nn.GroupNorm(4, width), nn.ReLU())
        self.out = nn.Conv3d(width, 1, 1)

    def forward(self, image, prompt):
        x = self.mid(self.down(torch.cat([image, prompt], 1)))
        return F.interpolate(self.out(x), scale_factor=2, mode="trilinear", align_corners=False)


class BaseTrainer:
    def __init__(self, model, loader, args):
        self.model, self.loader, self.args = model, loader, args
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.1)
        self.scheduler = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, [3, 5], 0.1)
        self.best_dice, self.losses = 0.0, []

    def seg_loss(self, logits, label):
        prob = logits.sigmoid()
        dice = 2 * (prob * label).sum() / (prob.sum() + label.sum() + 1e-6)
        return 1 - dice + F.binary_cross_entropy_with_logits(logits, label), dice

    def click_prompt(self, label, pred):
        prompt = torch.zeros_like(label)
        for b in range(len(label)):
            wrong = ((pred[b, 0] > 0) != (label[b, 0] > 0)).nonzero()
            if len(wrong):
                z, y, x = wrong[torch.randint(len(wrong), ())].tolist()
                prompt[b, 0, z, y, x] = 1.0 if label[b, 0, z, y, x] else -1.0
        return prompt

    def train_epoch(self, epoch):
        epoch_loss, epoch_dice = 0.0, 0.0
        self.model.train()
        self.loader.sampler.set_epoch(epoch)
        for step, (image, label) in enumerate(self.loader, 1):
            prompt, total = torch.zeros_like(label), 0.0
            for _ in range(self.args.num_clicks):
                logits = self.model(image, prompt)
                loss, dice = self.seg_loss(logits, label)
                total = total + loss / self.args.num_clicks
                prompt = prompt + self.click_prompt(label, logits.detach())
            self.optimizer.zero_grad()
            total.backward()
            self.optimizer.step()
            epoch_loss += total.item()
            epoch_dice += dice.item()
        epoch_loss /= step
        epoch_dice /= step
        return epoch_loss, epoch_dice

    def train(self):
        for epoch in range(self.args.num_epochs):
            loss, dice = self.train_epoch(epoch)
            self.scheduler.step()
            self.losses.append(loss)
            self.best_dice = max(self.best_dice, dice)
            logger.info("EPOCH: %d, loss: %.4f, dice: %.4f, best: %.4f", epoch, loss, dice, self.best_dice)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--task_name", default="union_train")
    parser.add_argument("--dataset", default="CT_Abdomen")
    parser.add_argument("--num_epochs", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=6)
    parser.add_argument("--num_clicks", type=int, default=3)
    parser.add_argument("--cases", type=int, default=24)
    parser.add_argument("--lr", type=float, default=8e-4)
    args = parser.parse_args()
    torch.manual_seed(2023)
    with tempfile.TemporaryDirectory() as work:
        root = os.path.join(work, "medical_preprocessed")
        convert_volumes(root, args.cases, 48)
        dataset = VolumeDataset([os.path.join(root, organ, args.dataset) for organ in CLASSES])
        sampler = DistributedSampler(dataset, num_replicas=1, rank=0, shuffle=True)
        loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler)
        logger.info("start %s on %s", args.task_name, ", ".join(CLASSES))
        BaseTrainer(PromptSegNet(), loader, args).train()
