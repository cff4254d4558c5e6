import ctypes
import os
import subprocess
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

HERE = os.path.dirname(os.path.abspath(__file__))
PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIALS = ["<pad>", "<s>", "</s>", "<unk>"]


class PieceTokenizer:
    def __init__(self, model_file, workdir):
        so = os.path.join(workdir, "libpiece.so")
        src = os.path.join(HERE, "a194_summary_rouge.cpp")
        subprocess.check_call(["g++", "-O1", "-g", "-shared", "-fPIC", src, "-o", so])
        self.lib = ctypes.CDLL(so)
        self.lib.processor_load.restype = ctypes.c_void_p
        self.lib.processor_load.argtypes = [ctypes.c_char_p]
        self.lib.processor_size.argtypes = [ctypes.c_void_p]
        self.lib.decode_ids.argtypes = [
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_int]
        self.handle = self.lib.processor_load(model_file.encode())
        self.pad_token_id = PAD

    def __len__(self):
        return self.lib.processor_size(self.handle)

    def decode(self, ids):
        ids = np.ascontiguousarray(ids, dtype=np.int32)
        out = ctypes.create_string_buffer(4096)
        self.lib.decode_ids(self.handle, ids.ctypes.data, len(ids), len(SPECIALS), out, len(out))
        return out.value.decode()

    def batch_decode(self, rows):
        return [self.decode(r) for r in rows]


class HeadlineDataset(Dataset):
    def __init__(self, n, vocab, seed, src_len=24):
        g = torch.Generator().manual_seed(seed)
        self.src = torch.randint(len(SPECIALS), vocab, (n, src_len), generator=g)
        self.lens = torch.randint(4, 9, (n,), generator=g)

    def __len__(self):
        return len(self.src)

    def __getitem__(self, i):
        tgt = self.src[i, : int(self.lens[i])]
        return self.src[i], torch.cat([tgt, torch.tensor([EOS])])


class Seq2SeqCollator:
    def __init__(self, label_pad_token_id=-100):
        self.label_pad = label_pad_token_id

    def __call__(self, batch):
        src = torch.stack([s for s, _ in batch])
        width = max(len(t) for _, t in batch)
        labels = torch.full((len(batch), width), self.label_pad)
        for i, (_, t) in enumerate(batch):
            labels[i, : len(t)] = t
        return src, labels


class Summarizer(nn.Module):
    def __init__(self, vocab, dim=64, max_len=12):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Parameter(torch.randn(max_len, dim) * 0.1)
        self.spos = nn.Parameter(torch.randn(32, dim) * 0.1)
        self.attn = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, src, width):
        mem = self.tok(src) + self.spos[: src.shape[1]]
        q = self.pos[:width].expand(len(src), -1, -1)
        h, _ = self.attn(q, mem, mem)
        return self.out(h)


def rouge1(preds, refs):
    scores = []
    for p, r in zip(preds, refs):
        a, b = set(p.split()), set(r.split())
        scores.append(2 * len(a & b) / max(len(a) + len(b), 1))
    return float(np.mean(scores))


def compute_metrics(tokenizer, preds, labels):
    decoded_preds = tokenizer.batch_decode(preds)
    decoded_labels = tokenizer.batch_decode(labels)
    return {"rouge1": rouge1(decoded_preds, decoded_labels)}


@torch.no_grad()
def evaluate(model, loader, tokenizer):
    model.eval()
    out = []
    for src, labels in loader:
        preds = model(src, labels.shape[1]).argmax(-1)
        out.append(compute_metrics(tokenizer, preds.numpy(), labels.numpy())["rouge1"])
    return float(np.mean(out))


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(prefix="headline_") as work:
        model_file = os.path.join(work, "piece.vocab")
        with open(model_file, "w") as f:
            f.write("\n".join(SPECIALS + [f"w{i}" for i in range(300)]) + "\n")
        tokenizer = PieceTokenizer(model_file, work)
        collate = Seq2SeqCollator()
        train = DataLoader(HeadlineDataset(3000, len(tokenizer), 1), 32, shuffle=True, collate_fn=collate)
        valid = DataLoader(HeadlineDataset(200, len(tokenizer), 2), 32, collate_fn=collate)
        model = Summarizer(len(tokenizer))
        opt = torch.optim.Adam(model.parameters(), lr=3e-3)
        for epoch in range(3):
            model.train()
            for step, (src, labels) in enumerate(train):
                logits = model(src, labels.shape[1])
                loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
                opt.zero_grad()
                loss.backward()
                opt.step()
                if step % 40 == 0:
                    print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
            print(f"epoch {epoch} rouge1 {evaluate(model, valid, tokenizer):.4f}", flush=True)


if __name__ == "__main__":
    main()
