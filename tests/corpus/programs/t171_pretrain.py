"""Small base-model pretraining on a folder of recipe shards."""
import argparse
import json
import os
import random
import tempfile
import time
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F

INGREDIENTS = ["flour", "butter", "onion", "garlic", "rice", "lentils", "basil", "tomato", "salt", "pepper",
               "paprika", "yoghurt", "honey", "lemon", "chicken", "mushroom", "potato", "carrot"]
VERBS = ["chop", "fry", "simmer", "bake", "whisk", "fold", "season", "roast", "drain", "serve"]


class CharTokenizer:
    def __init__(self):
        self.chars = "\n abcdefghijklmnopqrstuvwxyz.,"
        self.index = {c: i + 1 for i, c in enumerate(self.chars)}
        self.bos = 0

    @property
    def vocab_size(self):
        return len(self.chars) + 1

    def encode(self, texts):
        return [[self.bos] + [self.index[c] for c in t if c in self.index] for t in texts]


def write_shards(folder, n_shards, docs_per_shard, seed=11):
    rng = random.Random(seed)
    for s in range(n_shards):
        with open(os.path.join(folder, f"shard_{s:05d}.jsonl"), "w") as fh:
            for _ in range(docs_per_shard):
                lines = [f"{rng.choice(VERBS)} the {rng.choice(INGREDIENTS)} with {rng.choice(INGREDIENTS)}."
                         for _ in range(rng.randint(6, 14))]
                fh.write(json.dumps({"text": "\n".join(lines)}) + "\n")


def list_shards(folder, split):
    paths = sorted(os.path.join(folder, f) for f in os.listdir(folder) if f.endswith(".jsonl"))
    return paths[:-1] if split == "train" else paths[-1:]


def tokenizing_loader(folder, B, T, split, tokenizer, doc_batch=16, resume_state=None):
    """Streams (inputs, targets, state) forever from the shards of one split."""
    def document_batches():
        paths = list_shards(folder, split)
        pq_idx = resume_state["pq_idx"] if resume_state else 0
        rg_idx = resume_state["rg_idx"] if resume_state else 0
        while True:
            while pq_idx < len(paths):
                with open(paths[pq_idx]) as fh:
                    rows = [json.loads(line)["text"] for line in fh]
                n_groups = (len(rows) + doc_batch - 1) // doc_batch
                while rg_idx < n_groups:
                    yield rows[rg_idx * doc_batch:(rg_idx + 1) * doc_batch], (pq_idx, rg_idx)
                    rg_idx += 1
                rg_idx = 0
                pq_idx += 1

    batches = document_batches()
    token_buffer = deque()
    needed = B * T + 1
    while True:
        while len(token_buffer) < needed:
            docs, (pq_idx, rg_idx) = next(batches)
            for tokens in tokenizer.encode(docs):
                token_buffer.extend(tokens)
        tokens = torch.tensor([token_buffer.popleft() for _ in range(needed)], dtype=torch.long)
        yield tokens[:-1].view(B, T), tokens[1:].view(B, T), {"pq_idx": pq_idx, "rg_idx": rg_idx}


class TinyLM(nn.Module):
    def __init__(self, vocab, dim=64):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, vocab)

    def forward(self, x, y):
        h, _ = self.rnn(self.emb(x))
        return F.cross_entropy(self.head(h).flatten(0, 1), y.flatten())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--seq-len", type=int, default=64)
    ap.add_argument("--shards", type=int, default=4)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp(prefix="base_data_")
    write_shards(folder, args.shards, 96)
    tok = CharTokenizer()
    model = TinyLM(tok.vocab_size)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loader = tokenizing_loader(folder, args.batch, args.seq_len, "train", tok)
    x, y, state = next(loader)
    t0 = time.time()
    for step in range(args.steps):
        loss = model(x, y)
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        x, y, state = next(loader)
        if step % 10 == 0:
            print(f"step {step:04d}/{args.steps} loss {loss.item():.4f} shard {state['pq_idx']} "
                  f"group {state['rg_idx']} {time.time() - t0:.1f}s", flush=True)
    torch.save(model.state_dict(), os.path.join(folder, "base.pt"))
    print("training done")


if __name__ == "__main__":
    main()
