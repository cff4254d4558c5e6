"""Pack captions and image features into flat files once, then train a caption retriever on them."""
import os
import shutil
import subprocess
import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORK = "/tmp/o14_captions"
ROWS = 6000
DIM = 64
COLOURS = ["red", "green", "blue", "yellow", "black", "white"]
THINGS = ["car", "dog", "house", "boat", "bird", "lamp", "tree"]
PLACES = ["street", "beach", "garden", "kitchen", "field"]
FIELDS = np.dtype([("image_id", "i8"), ("caption", "O"), ("words", "i4")])


def describe(rng):
    colour, thing, place = rng.choice(COLOURS), rng.choice(THINGS), rng.choice(PLACES)
    return f"a {colour} {thing} in the {place}"


def pack(folder):
    """Write features.f32 and captions.rec; called as 'prog.py pack' for each new data set."""
    os.makedirs(folder, exist_ok=True)
    rng = np.random.default_rng(5)
    basis = {w: rng.normal(size=DIM) for w in COLOURS + THINGS + PLACES}
    features = np.memmap(os.path.join(folder, "features.f32"), dtype="f4", mode="w+", shape=(ROWS, DIM))
    captions = np.memmap(os.path.join(folder, "captions.rec"), dtype=FIELDS, mode="w+", shape=(ROWS,))
    for row in range(ROWS):
        text = describe(rng)
        captions[row] = (100_000 + row, text, len(text.split()))
        features[row] = sum(basis[w] for w in text.split() if w in basis) + 0.1 * rng.normal(size=DIM)
    features.flush()
    captions.flush()
    check = np.memmap(os.path.join(folder, "captions.rec"), dtype=FIELDS, mode="r")
    print("packed", len(check), "rows, e.g.", check[0]["image_id"], repr(check[0]["caption"]), flush=True)


class Vocabulary:
    def __init__(self):
        words = ["<pad>", "a", "in", "the"] + COLOURS + THINGS + PLACES
        self.index = {word: k for k, word in enumerate(words)}

    def encode(self, text, length=8):
        ids = [self.index[w] for w in text.split()][:length]
        return torch.tensor(ids + [0] * (length - len(ids)))


class CaptionSet(Dataset):
    def __init__(self, folder, vocabulary):
        self.captions = np.memmap(os.path.join(folder, "captions.rec"), dtype=FIELDS, mode="r")
        self.features = np.memmap(os.path.join(folder, "features.f32"), dtype="f4", mode="r",
                                  shape=(len(self.captions), DIM))
        self.vocabulary = vocabulary

    def __len__(self):
        return len(self.captions)

    def summary(self):
        ids, words = self.captions["image_id"], self.captions["words"]
        norm = np.linalg.norm(self.features, axis=1)
        return f"ids {ids.min()}..{ids.max()}, {words.mean():.1f} words, feature norm {norm.mean():.2f}"

    def __getitem__(self, row):
        feature = torch.from_numpy(np.array(self.features[row]))
        return feature, self.vocabulary.encode(self.captions[row]["caption"])


class Retriever(nn.Module):
    def __init__(self, words, dim=48):
        super().__init__()
        self.text = nn.EmbeddingBag(words, dim, padding_idx=0)
        self.image = nn.Sequential(nn.Linear(DIM, 96), nn.ReLU(), nn.Linear(96, dim))

    def forward(self, feature, ids):
        text = nn.functional.normalize(self.text(ids), dim=1)
        image = nn.functional.normalize(self.image(feature), dim=1)
        return 10 * text @ image.t()


def train(folder, epochs=2):
    torch.manual_seed(1)
    vocabulary = Vocabulary()
    data = CaptionSet(folder, vocabulary)
    print(f"{len(data)} rows: {data.summary()}", flush=True)
    model = Retriever(len(vocabulary.index))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    loader = DataLoader(data, batch_size=64, shuffle=True)
    for epoch in range(epochs):
        for feature, ids in loader:
            logits = model(feature, ids)
            loss = nn.functional.cross_entropy(logits, torch.arange(len(ids)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)
    torch.save(model.state_dict(), os.path.join(folder, "retriever.pt"))


def main():
    if sys.argv[1:] == ["pack"]:
        pack(WORK)
        return
    if not os.path.exists(os.path.join(WORK, "captions.rec")):
        subprocess.run([sys.executable, os.path.abspath(__file__), "pack"], check=True)
    train(WORK)
    print("finished")
    shutil.rmtree(WORK)


if __name__ == "__main__":
    main()
