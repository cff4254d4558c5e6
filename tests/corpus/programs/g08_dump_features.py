"""Dump encoder features of an utterance list for k-means training, one process per split."""
import multiprocessing as mp
import os
import tempfile

import torch
from torch import nn

SAMPLE_RATE = 16000


class FeatureExtractor(nn.Module):
    def __init__(self, dims=(1, 64, 128)):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv1d(a, b, 10, stride=5) for a, b in zip(dims[:-1], dims[1:]))

    def forward(self, wav):
        x = wav[:, None]
        for conv in self.convs:
            x = nn.functional.gelu(conv(x))
        return x.transpose(1, 2)


class Encoder(nn.Module):
    def __init__(self, dim=128, n_layers=2):
        super().__init__()
        self.extractor = FeatureExtractor()
        layer = nn.TransformerEncoderLayer(dim, 4, 256, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, n_layers)

    def forward(self, wav):
        wav = (wav - wav.mean(-1, keepdim=True)) / (wav.std(-1, keepdim=True) + 1e-5)
        return self.layers(self.extractor(wav))


def load_utterance(name):
    g = torch.Generator().manual_seed(int(name.split("-")[1]))
    seconds = 1 + 2 * torch.rand(1, generator=g).item()
    return 0.1 * torch.randn(1, int(seconds * SAMPLE_RATE), generator=g)


def sanity_check(encoder):
    with torch.no_grad():
        feats = encoder(load_utterance("utt-0"))
    print("feature shape of utt-0:", tuple(feats.shape), flush=True)


def dump_split(split, names, encoder, out_dir):
    frames = []
    with torch.no_grad():
        for name in names:
            frames.append(encoder(load_utterance(name))[0])
    feats = torch.cat(frames)
    torch.save(feats, os.path.join(out_dir, f"{split}.pt"))
    print(f"[{split}] {len(names)} utterances, {feats.shape[0]} frames", flush=True)


def main():
    torch.manual_seed(0)
    out_dir = tempfile.mkdtemp(prefix="hubert_feats_")
    encoder = Encoder().eval()
    sanity_check(encoder)
    names = [f"utt-{i}" for i in range(12)]
    splits = {"train": names[:8], "valid": names[8:]}
    processes = [mp.Process(target=dump_split, args=(s, n, encoder, out_dir)) for s, n in splits.items()]
    for p in processes:
        p.start()
    for p in processes:
        p.join()
    print("features in", out_dir, sorted(os.listdir(out_dir)))


if __name__ == "__main__":
    main()
