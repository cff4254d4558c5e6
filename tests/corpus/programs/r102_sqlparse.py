"""Text-to-SQL sketch parser. Training can be cut into runs: every run writes
<save_path>/state.pt and the next one goes on from there."""
import argparse
import os
import tempfile

import torch
from torch import nn
import torch.nn.functional as F

KEYWORDS = ["select", "count", "max", "min", "avg", "where", "group", "order"]


class QuestionTables:
    """Questions over random schemas: token ids, column ids and the keyword the query starts with."""

    def __init__(self, size, vocab, seed):
        gen = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(0, vocab, (size, 18), generator=gen)
        self.columns = torch.randint(0, 40, (size, 6), generator=gen)
        self.sketch = (self.tokens[:, 0] + self.columns[:, 0]) % len(KEYWORDS)

    def batches(self, size):
        order = torch.randperm(len(self.tokens))
        for start in range(0, len(order) - size + 1, size):
            rows = order[start:start + size]
            yield self.tokens[rows], self.columns[rows], self.sketch[rows]


class RelationEncoder(nn.Module):
    def __init__(self, hidden, heads, relations):
        super().__init__()
        self.attention = nn.MultiheadAttention(hidden, heads, batch_first=True)
        self.norm1 = nn.LayerNorm(hidden)
        self.ffn = nn.Sequential(nn.Linear(hidden, 3 * hidden), nn.GELU(), nn.Linear(3 * hidden, hidden))
        self.norm2 = nn.LayerNorm(hidden)
        self.relation_bias = nn.Parameter(torch.zeros(relations, 1))

    def forward(self, x):
        attended, _ = self.attention(x, x, x)
        x = self.norm1(x + attended + self.relation_bias.mean())
        return self.norm2(x + self.ffn(x))


class SketchParser(nn.Module):
    def __init__(self, vocab=300, hidden=48, layers=2):
        super().__init__()
        self.words = nn.Embedding(vocab, hidden)
        self.columns = nn.Embedding(40, hidden)
        self.layers = nn.ModuleList(RelationEncoder(hidden, 4, 7 + 2 * i) for i in range(layers))
        self.classifier = nn.Linear(hidden, len(KEYWORDS))

    def forward(self, tokens, columns):
        x = torch.cat([self.words(tokens), self.columns(columns)], dim=1)
        for layer in self.layers:
            x = layer(x)
        return self.classifier(x.mean(1))


def set_optimizer(model, args):
    no_decay = ("bias", "norm1.weight", "norm2.weight", "relation_bias")
    plain = {p for name, p in model.named_parameters() if name.endswith(no_decay)}
    decayed = set(model.parameters()) - plain
    groups = [{"params": list(decayed), "weight_decay": args.l2},
              {"params": list(plain), "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=args.lr)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / args.warmup))
    return optimizer, scheduler


def evaluate(model, data):
    model.eval()
    with torch.no_grad():
        correct = (model(data.tokens, data.columns).argmax(1) == data.sketch).float().mean()
    model.train()
    return correct.item()


def run(args, train_set, dev_set, last_epoch):
    path = os.path.join(args.save_path, "state.pt")
    model = SketchParser()
    optimizer, scheduler = set_optimizer(model, args)
    first_epoch = 0
    if os.path.exists(path):
        checkpoint = torch.load(path)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optim"])
        scheduler.load_state_dict(checkpoint["scheduler"])
        first_epoch = checkpoint["epoch"] + 1
        print(f"loaded {path}, dev accuracy {evaluate(model, dev_set):.3f}, go on with epoch {first_epoch}", flush=True)
    for epoch in range(first_epoch, last_epoch):
        total, count = 0.0, 0
        for tokens, columns, sketch in train_set.batches(args.batch_size):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(tokens, columns), sketch)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            scheduler.step()
            total, count = total + loss.item(), count + 1
        accuracy = evaluate(model, dev_set)
        torch.save({"model": model.state_dict(), "optim": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(), "epoch": epoch}, path)
        print(f"epoch {epoch} loss {total / count:.4f} dev accuracy {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, nargs="+", default=[3, 6], help="last epoch of each run")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--l2", type=float, default=0.1)
    parser.add_argument("--warmup", type=int, default=20)
    args = parser.parse_args()
    torch.manual_seed(999)
    torch.set_num_threads(1)
    args.save_path = tempfile.mkdtemp(prefix="sqlparse_")
    train_set, dev_set = QuestionTables(1600, 300, seed=1), QuestionTables(320, 300, seed=2)
    for number, last_epoch in enumerate(args.runs):
        print(f"== run {number}: up to epoch {last_epoch}", flush=True)
        run(args, train_set, dev_set, last_epoch)
