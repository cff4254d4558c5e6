"""Detector on a video stream: a background thread keeps reading and preparing the newest frame."""
import threading
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class LoadStreams:
    def __init__(self, source=0, img_size=416):
        self.source = source
        self.img_size = img_size
        self.frame = self.letterbox(self.grab())
        self.thread = threading.Thread(target=self.update, daemon=True)
        self.thread.start()

    def grab(self):
        return torch.randint(0, 256, (3, 720, 1280), dtype=torch.uint8)

    def letterbox(self, img):
        img = img.float().div_(255)[None]
        img = F.interpolate(img, size=(234, self.img_size), mode="bilinear", align_corners=False)
        return F.pad(img, (0, 0, 91, 91), value=0.5)

    def update(self):
        while True:
            self.frame = self.letterbox(self.grab())

    def __iter__(self):
        return self

    def __next__(self):
        return self.frame.clone()


class TinyDetector(nn.Module):
    def __init__(self, n_classes=20):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=4, padding=1), nn.LeakyReLU(0.1),
            nn.Conv2d(8, 16, 3, stride=4, padding=1), nn.LeakyReLU(0.1))
        self.head = nn.Conv2d(16, 3 * (5 + n_classes), 1)

    def forward(self, x):
        return self.head(self.backbone(x))


def detect(max_frames=20):
    model = TinyDetector().eval()
    dataset = LoadStreams()
    t0 = time.time()
    with torch.no_grad():
        for n, img in enumerate(dataset, 1):
            pred = model(img)
            conf = pred.view(1, 3, 25, -1)[:, :, 4].sigmoid()
            if n % 5 == 0:
                print(f"frame {n}: best box {conf.max().item():.3f}")
            if n == max_frames:
                break
    print(f"Done. ({time.time() - t0:.2f}s)")


if __name__ == "__main__":
    torch.manual_seed(0)
    detect()
