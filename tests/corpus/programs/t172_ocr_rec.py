"""Fine-tune a small CTC recogniser on cropped licence plates."""
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

ALPHABET = "ABCDEFGHJKLMNPRSTUVWXYZ0123456789"

CONFIG = {
    "Global": {"max_text_length": 7, "image_shape": (16, 84), "epochs": 2},
    "Train": {"batch_size": 32, "num_workers": 1},
    "Pretrain": {"label_file": "synth_gt.txt", "image_dir": "synth"},
    "Finetune": {"label_file": "rec_gt_train.txt", "image_dir": "plates"},
}


def render(text, h, w, rng):
    img, step = rng.normal(0.0, 0.15, size=(h, w)).astype(np.float32), w // len(text)
    for k, ch in enumerate(text):
        code = ALPHABET.index(ch) + 1
        for bit in range(6):
            if code >> bit & 1:
                img[2 + 2 * bit:4 + 2 * bit, k * step:k * step + step - 2] += 1.0
    return img


def write_split(root, label_file, image_dir, n, lengths, seed):
    rng = np.random.default_rng(seed)
    os.makedirs(os.path.join(root, image_dir), exist_ok=True)
    with open(os.path.join(root, label_file), "w") as fh:
        for i in range(n):
            text = "".join(rng.choice(list(ALPHABET), size=int(rng.choice(lengths))))
            name = f"{image_dir}/crop_{i:05d}.npy"
            np.save(os.path.join(root, name), render(text, *CONFIG["Global"]["image_shape"], rng))
            fh.write(f"{name}\t{text}\n")


class LabelEncode:
    def __init__(self, max_text_length):
        self.max_text_len = max_text_length
        self.table = {c: i + 1 for i, c in enumerate(ALPHABET)}

    def __call__(self, data):
        ids = self.encode(data["label"])
        if ids is None:
            return None
        data["length"] = len(ids)
        data["label"] = np.array(ids + [0] * (self.max_text_len - len(ids)), dtype=np.int64)
        return data

    def encode(self, text):
        if len(text) == 0 or len(text) >= self.max_text_len:
            return None
        ids = [self.table[c] for c in text if c in self.table]
        return ids or None


class DecodeImage:
    def __call__(self, data):
        data["image"] = np.load(data["img_path"])
        return data


class SimpleDataSet(Dataset):
    def __init__(self, root, label_file, image_dir, ops):
        self.root, self.ops = root, ops
        with open(os.path.join(root, label_file)) as fh:
            self.data_lines = fh.read().splitlines()

    def __len__(self):
        return len(self.data_lines)

    def __getitem__(self, idx):
        name, label = self.data_lines[idx].split("\t")
        data = {"img_path": os.path.join(self.root, name), "label": label}
        for op in self.ops:
            data = op(data) if data is not None else None
        if data is None:
            return self.__getitem__(np.random.randint(len(self)))
        return data["image"][None], data["label"], data["length"]


class CRNN(nn.Module):
    def __init__(self, n_class):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                                  nn.Conv2d(24, 48, 3, padding=1), nn.ReLU(), nn.MaxPool2d((2, 1)))
        self.rnn = nn.GRU(48 * 4, 64, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(128, n_class)

    def forward(self, x):
        f = self.conv(x).permute(0, 3, 1, 2).flatten(2)
        return self.fc(self.rnn(f)[0]).log_softmax(-1)


def run_stage(name, model, optimizer, root):
    ops, epochs = [DecodeImage(), LabelEncode(CONFIG["Global"]["max_text_length"])], CONFIG["Global"]["epochs"]
    dataset = SimpleDataSet(root, ops=ops, **CONFIG[name])
    loader = DataLoader(dataset, shuffle=True, drop_last=True, **CONFIG["Train"])
    for epoch in range(epochs):
        total = 0.0
        for image, label, length in loader:
            logp = model(image).transpose(0, 1)
            loss = F.ctc_loss(logp, label, torch.full_like(length, logp.size(0)), length)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"[{name}] epoch {epoch + 1}/{epochs} loss {total / len(loader):.4f}", flush=True)


def main():
    torch.manual_seed(3)
    torch.set_num_threads(1)
    root = tempfile.mkdtemp(prefix="rec_")
    write_split(root, **CONFIG["Pretrain"], n=640, lengths=[4, 5, 6], seed=1)
    write_split(root, **CONFIG["Finetune"], n=480, lengths=[7], seed=2)
    model = CRNN(len(ALPHABET) + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    run_stage("Pretrain", model, optimizer, root)
    run_stage("Finetune", model, optimizer, root)
    print("saved", os.path.join(root, "best_accuracy.pt"))


if __name__ == "__main__":
    main()
