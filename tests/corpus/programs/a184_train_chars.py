import argparse
import logging
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("chars")

NAMES = ["MENENIUS", "BRUTUS", "VOLUMNIA", "COMINIUS", "Lartius", "Junius", "Quintus"]
VERBS = ["speaks", "departs", "weeps", "jests", "zealously waits", "quarrels", "vexes us"]
PLACES = ["at the gate", "in Rome", "by the Tiber", "upon the hill", "Fie! At dawn?", "yonder; alone,"]


def make_corpus(lines, seed=1337):
    rng = random.Random(seed)
    out = []
    for _ in range(lines):
        who, verb, where = rng.choice(NAMES), rng.choice(VERBS), rng.choice(PLACES)
        out.append(f"{who}:\n{rng.choice(NAMES).title()} {verb} {where} - '{rng.choice(VERBS)}' & more.\n")
    return "\n".join(out)


class CharData:
    def __init__(self, text):
        self.chars = sorted(set(text))
        self.stoi = {c: i for i, c in enumerate(self.chars)}
        ids = torch.tensor([self.stoi[c] for c in text], dtype=torch.long)
        n = int(0.9 * len(ids))
        self.split = {"train": ids[:n], "val": ids[n:]}

    @property
    def vocab_size(self):
        return len(self.chars)

    def decode(self, ids):
        return "".join(self.chars[i] for i in ids)

    def batch(self, split, batch_size, block_size):
        data = self.split[split]
        ix = torch.randint(len(data) - block_size, (batch_size,))
        x = torch.stack([data[i:i + block_size] for i in ix])
        y = torch.stack([data[i + 1:i + block_size + 1] for i in ix])
        return x, y


class BigramLanguageModel(nn.Module):
    def __init__(self, vocab_size, n_embd):
        super().__init__()
        self.token_embedding_table = nn.Embedding(vocab_size, n_embd)

    def forward(self, idx, targets=None):
        logits = self.token_embedding_table(idx)
        if targets is None:
            return logits, None
        b, t, c = logits.shape
        return logits, F.cross_entropy(logits.view(b * t, c), targets.view(b * t))

    @torch.no_grad()
    def generate(self, idx, max_new_tokens):
        for _ in range(max_new_tokens):
            logits, _ = self(idx)
            probs = F.softmax(logits[:, -1, :], dim=-1)
            idx_next = torch.multinomial(probs, num_samples=1)
            idx = torch.cat((idx, idx_next), dim=1)
        return idx


@torch.no_grad()
def estimate_loss(model, data, args):
    model.eval()
    out = {}
    for split in ("train", "val"):
        losses = [model(*data.batch(split, args.batch_size, args.block_size))[1].item() for _ in range(args.eval_iters)]
        out[split] = sum(losses) / len(losses)
    model.train()
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--n-embd", type=int, default=128)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--block-size", type=int, default=8)
    ap.add_argument("--max-iters", type=int, default=1500)
    ap.add_argument("--eval-interval", type=int, default=300)
    ap.add_argument("--eval-iters", type=int, default=50)
    ap.add_argument("--lr", type=float, default=1e-3)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(1337)
    data = CharData(make_corpus(3000))
    model = BigramLanguageModel(data.vocab_size, args.n_embd)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    log.info("%d characters, vocabulary of %d", sum(len(s) for s in data.split.values()), data.vocab_size)
    started = time.time()
    for it in range(args.max_iters):
        if it % args.eval_interval == 0:
            losses = estimate_loss(model, data, args)
            log.info("step %d: train loss %.4f, val loss %.4f", it, losses["train"], losses["val"])
        xb, yb = data.batch("train", args.batch_size, args.block_size)
        _, loss = model(xb, yb)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    log.info("trained in %.1f s", time.time() - started)
    context = torch.zeros((1, 1), dtype=torch.long)
    log.info("sample:\n%s", data.decode(model.generate(context, max_new_tokens=500)[0].tolist()))


if __name__ == "__main__":
    main()
