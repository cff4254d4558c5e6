"""Fine-tune a small ticket router and score the day's inbox with the compiled model."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

QUEUES = ["billing", "network", "hardware", "account"]


class TicketRouter(nn.Module):
    def __init__(self, vocab=3000, dim=64, max_len=128):
        super().__init__()
        self.token = nn.Embedding(vocab, dim)
        self.position = nn.Embedding(max_len, dim)
        self.head = nn.Linear(dim, len(QUEUES))

    def forward(self, ids, positions):
        h = torch.tanh(self.token(ids) + self.position(positions))
        return self.head(h.mean(dim=1))


class Inbox:
    """Tickets grouped by length so that a batch needs no padding."""

    def __init__(self, seed, vocab=3000):
        self.generator = torch.Generator().manual_seed(seed)
        self.vocab = vocab

    def batch(self, size, length):
        labels = torch.randint(0, len(QUEUES), (size,), generator=self.generator)
        ids = torch.randint(0, self.vocab, (size, length), generator=self.generator)
        marked = torch.rand(size, length, generator=self.generator) < 0.3
        topic = labels[:, None] * 20 + torch.randint(0, 20, (size, length), generator=self.generator)
        return torch.where(marked, topic, ids), labels

    def training(self, steps):
        for step in range(steps):
            yield step, *self.batch(32, 24 + 8 * (step % 13))

    def today(self):
        for length in (32, 40, 64, 96, 120, 128, 136, 160):
            yield self.batch(48, length)


def positions_for(ids):
    return torch.arange(ids.shape[1]).expand_as(ids)


def train(model, inbox, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step, ids, labels in inbox.training(steps):
        loss = F.cross_entropy(model(ids, positions_for(ids)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 0:
            print(f"step {step:3d} length {ids.shape[1]:3d} loss {loss.item():.4f}", flush=True)


@torch.no_grad()
def score_inbox(model, inbox):
    model.eval()
    scorer = torch.compile(model, dynamic=True)
    counts = torch.zeros(len(QUEUES), dtype=torch.long)
    hits = total = 0
    for ids, labels in inbox.today():
        try:
            logits = scorer(ids, positions_for(ids))
        except (IndexError, RuntimeError) as exc:
            print(f"skipped a batch of length {ids.shape[1]}: {exc}", flush=True)
            continue
        choice = logits.argmax(dim=1)
        counts += torch.bincount(choice, minlength=len(QUEUES))
        hits += int((choice == labels).sum())
        total += len(labels)
        print(f"scored {len(labels)} tickets of {ids.shape[1]} tokens", flush=True)
    return counts, hits / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--max-len", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    model = TicketRouter(max_len=args.max_len)
    inbox = Inbox(args.seed)
    train(model, inbox, args.steps)
    torch.save(model.state_dict(), "router.pt")

    counts, accuracy = score_inbox(model, inbox)
    for name, count in zip(QUEUES, counts.tolist()):
        print(f"{name:10s} {count:4d}")
    print(f"accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
