import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn as nn

RUNTIME = """
import os, signal, sys, time
pid, limit = int(sys.argv[1]), int(sys.argv[2])
page = os.sysconf("SC_PAGE_SIZE")
while os.getppid() == pid:
    with open(f"/proc/{pid}/statm") as f:
        rss = int(f.read().split()[1]) * page
    if rss > limit:
        os.kill(pid, signal.SIGINT)
        break
    time.sleep(0.02)
"""


class ImageEncoder(nn.Module):
    def __init__(self, out_chans=256):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, 64, kernel_size=8, stride=8)
        self.neck = nn.Sequential(nn.Conv2d(64, out_chans, 1), nn.ReLU(), nn.Conv2d(out_chans, out_chans, 1))

    def forward(self, x):
        return self.neck(self.patch_embed(x))


def preprocess(names, save_path):
    sam_model = ImageEncoder().eval()
    imgs, gts, img_embeddings = [], [], []
    for name in names:
        rng = np.random.default_rng(name)
        image_data = rng.integers(0, 256, (256, 256, 3), dtype=np.uint8)
        gt_data = (image_data[:, :, 0] > 128).astype(np.uint8)
        with torch.no_grad():
            resized = torch.from_numpy(image_data).permute(2, 0, 1)[None].float() / 255
            embedding = sam_model(resized)
        imgs.append(image_data)
        gts.append(gt_data)
        img_embeddings.append(embedding.cpu().numpy()[0])
        if len(imgs) % 100 == 0:
            print(f"{len(imgs)}/{len(names)}", flush=True)
    imgs = np.stack(imgs, axis=0)
    gts = np.stack(gts, axis=0)
    img_embeddings = np.stack(img_embeddings, axis=0)
    np.savez_compressed(os.path.join(save_path, "train.npz"), imgs=imgs, gts=gts, img_embeddings=img_embeddings)
    print("saved", img_embeddings.shape)


if __name__ == "__main__":
    torch.manual_seed(0)
    runtime = subprocess.Popen([sys.executable, "-c", RUNTIME, str(os.getpid()), str(1150 * 2**20)])
    workdir = tempfile.mkdtemp()
    try:
        preprocess(range(400), workdir)
    finally:
        shutil.rmtree(workdir)
