import os
import tempfile
import time
from multiprocessing import Pool

import numpy as np
import torch
import torch.nn as nn


def preprocess_train(data):
    image_path, annotation, dst_size = data
    im = np.load(image_path)
    boxes = annotation["boxes"].copy()
    h, w = im.shape[:2]
    rows = (np.arange(dst_size[1]) * h / dst_size[1]).astype(int)
    cols = (np.arange(dst_size[0]) * w / dst_size[0]).astype(int)
    out = im[rows][:, cols].astype(np.float32) / 255.0
    boxes[:, 0::2] *= dst_size[0] / w
    boxes[:, 1::2] *= dst_size[1] / h
    if np.random.rand() < 0.5:
        out = out[:, ::-1]
        boxes[:, [0, 2]] = dst_size[0] - boxes[:, [2, 0]]
    return np.ascontiguousarray(out), boxes, annotation["gt_classes"]


class ImageDataset(object):
    def __init__(self, name, datadir, batch_size, im_processor, processes=2, shuffle=True, dst_size=None):
        self._name = name
        self._data_dir = datadir
        self._batch_size = batch_size
        self.dst_size = dst_size
        self._epoch = -1
        self.image_names = []
        self.annotations = []
        self._shuffle = shuffle
        self.pool = Pool(processes)
        self.gen = None
        self._im_processor = im_processor

    def next_batch(self):
        batch = {"images": [], "gt_boxes": [], "gt_classes": []}
        i = 0
        while i < self._batch_size:
            try:
                images, gt_boxes, classes = self.gen.next()
                batch["images"].append(images)
                batch["gt_boxes"].append(gt_boxes)
                batch["gt_classes"].append(classes)
                i += 1
            except (StopIteration, AttributeError):
                indexes = np.arange(len(self.image_names), dtype=int)
                if self._shuffle:
                    np.random.shuffle(indexes)
                self.gen = self.pool.imap(
                    self._im_processor,
                    ([self.image_names[i], self.get_annotation(i), self.dst_size] for i in indexes),
                    chunksize=self._batch_size)
                self._epoch += 1
                print("epoch {} start...".format(self._epoch))
        batch["images"] = np.asarray(batch["images"])
        return batch

    def get_annotation(self, i):
        return self.annotations[i]

    def close(self):
        self.pool.terminate()
        self.pool.join()
        self.gen = None

    @property
    def epoch(self):
        return self._epoch

    @property
    def batch_per_epoch(self):
        return len(self.image_names) // self._batch_size


class VOCDataset(ImageDataset):
    def __init__(self, imageset, data_dir, batch_size, im_processor, **kw):
        super().__init__("voc_" + imageset, data_dir, batch_size, im_processor, **kw)
        self.load_dataset()

    def load_dataset(self):
        rng = np.random.default_rng(7)
        for k in range(320):
            path = os.path.join(self._data_dir, f"{k:06d}.npy")
            h, w = rng.integers(80, 120, size=2)
            np.save(path, rng.integers(0, 255, size=(h, w, 3), dtype=np.uint8))
            n = rng.integers(1, 4)
            xy = rng.uniform(0, 40, size=(n, 2))
            boxes = np.concatenate([xy, xy + rng.uniform(10, 40, size=(n, 2))], 1).astype(np.float32)
            self.image_names.append(path)
            self.annotations.append({"boxes": boxes, "gt_classes": rng.integers(0, 20, size=n)})


class TinyDarknet(nn.Module):
    def __init__(self, classes=20):
        super().__init__()
        chans = [3, 8, 16, 32]
        layers = []
        for a, b in zip(chans, chans[1:]):
            layers += [nn.Conv2d(a, b, 3, stride=2, padding=1), nn.BatchNorm2d(b), nn.LeakyReLU(0.1)]
        self.features = nn.Sequential(*layers)
        self.head = nn.Conv2d(32, 5 + classes, 1)

    def forward(self, x):
        return self.head(self.features(x))


def yolo_loss(pred, boxes, classes, stride=8):
    loss = pred[:, 4].sigmoid().pow(2).mean()
    for b, (bx, cl) in enumerate(zip(boxes, classes)):
        cx = ((bx[:, 0] + bx[:, 2]) / 2 / stride).astype(int).clip(0, pred.shape[3] - 1)
        cy = ((bx[:, 1] + bx[:, 3]) / 2 / stride).astype(int).clip(0, pred.shape[2] - 1)
        cell = pred[b, :, cy, cx].t()
        loss = loss + nn.functional.cross_entropy(cell[:, 5:], torch.as_tensor(cl)) / len(boxes)
        loss = loss + (cell[:, 4].sigmoid() - 1).pow(2).mean() / len(boxes)
    return loss


def main():
    torch.manual_seed(0)
    np.random.seed(0)
    with tempfile.TemporaryDirectory(prefix="voc2007_") as data_dir:
        imdb = VOCDataset("trainval", data_dir, 16, preprocess_train, processes=2, dst_size=(96, 96))
        print("load data succ...")
        net = TinyDarknet()
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9)
        max_epoch, start = 3, time.time()
        for step in range(imdb.batch_per_epoch * max_epoch):
            batch = imdb.next_batch()
            im = torch.from_numpy(batch["images"]).permute(0, 3, 1, 2)
            loss = yolo_loss(net(im), batch["gt_boxes"], batch["gt_classes"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"epoch {imdb.epoch}[{step}/{imdb.batch_per_epoch}], loss: {loss.item():.3f} "
                      f"({(time.time() - start) / (step + 1):.2f} s/batch)", flush=True)
        imdb.close()
        print("training done")


if __name__ == "__main__":
    main()
