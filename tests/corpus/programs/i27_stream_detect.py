import argparse
import threading
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Camera:
    """Stands for cv2.VideoCapture(0): 30 frames per second, 480x640."""

    def __init__(self, source):
        self.rng = np.random.default_rng(int(source))

    def read(self):
        return self.rng.integers(0, 256, (480, 640, 3), dtype=np.uint8)


class LoadWebcam:
    def __init__(self, sources, img_size=416):
        self.img_size = img_size
        self.imgs = [None] * len(sources)
        for i, source in enumerate(sources):
            thread = threading.Thread(target=self.update, args=(i, Camera(source)), daemon=True)
            thread.start()
        while any(img is None for img in self.imgs):
            time.sleep(0.01)

    def update(self, index, cap):
        while True:
            frame = torch.from_numpy(cap.read()).permute(2, 0, 1).float().div_(255)
            frame = F.interpolate(frame[None], size=(self.img_size, self.img_size),
                                  mode="bicubic", antialias=True, align_corners=False)
            self.imgs[index] = (frame - frame.mean()) / frame.std()

    def __iter__(self):
        return self

    def __next__(self):
        return torch.cat(self.imgs)


class Detector(nn.Module):
    def __init__(self, num_classes=80):
        super().__init__()
        layers, c = [], 3
        for width in (16, 32, 64):
            layers += [nn.Conv2d(c, width, 3, 2, 1), nn.BatchNorm2d(width), nn.LeakyReLU(0.1)]
            c = width
        self.backbone = nn.Sequential(*layers)
        self.head = nn.Conv2d(c, 3 * (num_classes + 5), 1)

    def forward(self, x):
        return self.head(self.backbone(x))


@torch.no_grad()
def detect(opt):
    model = Detector().eval()
    for i, imgs in enumerate(LoadWebcam(opt.source)):
        t = time.time()
        conf = model(imgs).view(len(imgs), 3, 85, -1)[:, :, 4].sigmoid()
        print(f"frame {i}: {int((conf > 0.6).sum())} objects, {1000 * (time.time() - t):.0f} ms", flush=True)
        if i == opt.frames:  # q was pressed
            break
    print("Done.", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", nargs="+", default=["0", "1"])
    parser.add_argument("--frames", type=int, default=25)
    torch.set_num_threads(1)
    detect(parser.parse_args())
