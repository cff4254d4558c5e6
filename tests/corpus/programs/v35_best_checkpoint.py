import os
import tempfile

import numpy as np
import torch
import torch.nn as nn


def build_model():
    return nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.BatchNorm2d(16), nn.SiLU(), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(16, 20))


class VOCEvaluator:
    def evaluate(self, model, images, labels):
        model.eval()
        with torch.no_grad():
            scores = model(images).softmax(-1)
        mAPs = []
        for iou in np.arange(0.5, 0.95, 0.05):
            hits = (scores.max(-1).values.numpy() > iou * 0.1) & (scores.argmax(-1) == labels).numpy()
            mAPs.append(hits.mean())
        model.train()
        return np.mean(mAPs), mAPs[0]


class Trainer:
    def __init__(self, file_name, max_epoch, ckpt=None):
        torch.manual_seed(0)
        self.file_name, self.max_epoch, self.best_ap, self.start_epoch = file_name, max_epoch, 0.0, 0
        self.model = build_model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.evaluator = VOCEvaluator()
        self.images, self.labels = torch.randn(64, 3, 32, 32), torch.randint(0, 20, (64,))
        if ckpt is not None:
            self.resume_train(ckpt)

    def resume_train(self, ckpt_file):
        ckpt = torch.load(ckpt_file, map_location="cpu")
        self.model.load_state_dict(ckpt["model"])
        self.optimizer.load_state_dict(ckpt["optimizer"])
        self.start_epoch = ckpt["start_epoch"]

    def train(self):
        for self.epoch in range(self.start_epoch, self.max_epoch):
            loss = nn.functional.cross_entropy(self.model(self.images), self.labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.save_ckpt("latest")
            ap50_95, ap50 = self.evaluator.evaluate(self.model, self.images, self.labels)
            self.best_ap = max(self.best_ap, float(ap50_95))
            self.save_ckpt("last_epoch", ap=ap50_95)
            print(f"epoch {self.epoch} loss {loss.item():.3f} ap50 {ap50:.3f}")

    def save_ckpt(self, name, ap=None):
        torch.save({"start_epoch": self.epoch + 1, "model": self.model.state_dict(),
                    "optimizer": self.optimizer.state_dict(), "best_ap": self.best_ap, "curr_ap": ap},
                   os.path.join(self.file_name, name + "_ckpt.pth"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as out:
        Trainer(out, 3).train()
        Trainer(out, 6, ckpt=os.path.join(out, "latest_ckpt.pth")).train()
        Trainer(out, 9, ckpt=os.path.join(out, "last_epoch_ckpt.pth")).train()
