import argparse
import os
import tempfile

import torch
import torch.nn as nn


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.SiLU())
        self.stage = nn.Sequential(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.SiLU())

    def forward(self, x):
        return self.stage(self.stem(x))


class Detector(nn.Module):
    """Boxes and class scores for each cell of the feature map."""

    def __init__(self, classes=20, anchors=3):
        super().__init__()
        self.backbone = Backbone()
        self.boxes = nn.Conv2d(32, anchors * 4, 1)
        self.scores = nn.Conv2d(32, anchors * classes, 1)

    def forward(self, images):
        features = self.backbone(images)
        return {
            "pred_boxes": self.boxes(features).sigmoid(),
            "pred_logits": self.scores(features),
            "features": features,
        }


def export(model, path, size):
    model.eval()
    dummy = torch.zeros(1, 3, size, size)
    with torch.no_grad():
        traced = torch.jit.trace(model, dummy)
    traced.save(path)
    return path


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--img-size", type=int, default=64)
    opt = parser.parse_args()
    torch.manual_seed(0)
    model = Detector()
    with tempfile.TemporaryDirectory() as out:
        path = export(model, os.path.join(out, "detector.torchscript.pt"), opt.img_size)
        print(f"TorchScript export success, saved as {path}")
        boxes = torch.jit.load(path)(torch.rand(1, 3, opt.img_size, opt.img_size))["pred_boxes"]
        print("boxes", tuple(boxes.shape))


if __name__ == "__main__":
    main()
