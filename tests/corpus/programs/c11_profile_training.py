"""Profile a few training steps of the text classifier to find the slow layers."""
import argparse

import torch
import torch.nn as nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, TensorDataset


class TextClassifier(nn.Module):
    def __init__(self, vocab=5000, dim=64, hidden=96, classes=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, hidden, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, tokens):
        x = self.embed(tokens)
        _, h = self.rnn(x)
        return self.head(h[-1])


class StepProfiler:
    def __init__(self, warmup=1, steps=4):
        self.prof = profile(activities=[ProfilerActivity.CPU], record_shapes=True,
                            profile_memory=True, with_stack=True)
        self.warmup = warmup
        self.last = warmup + steps

    def begin(self, step):
        if step == self.warmup:
            self.prof.start()

    def end(self, step):
        if self.warmup <= step < self.last:
            self.prof.step()

    def report(self, rows):
        return self.prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=rows)


def make_loader(n, batch_size):
    tokens = torch.randint(0, 5000, (n, 40))
    labels = torch.randint(0, 4, (n,))
    return DataLoader(TensorDataset(tokens, labels), batch_size=batch_size, shuffle=True)


def train(args):
    model = TextClassifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    profiler = StepProfiler(steps=args.profile_steps)
    for step, (tokens, labels) in enumerate(make_loader(320, args.batch_size)):
        profiler.begin(step)
        loss = criterion(model(tokens), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        profiler.end(step)
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    print(profiler.report(args.rows), flush=True)
    torch.save(model.state_dict(), args.out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--profile-steps", type=int, default=4)
    parser.add_argument("--rows", type=int, default=15)
    parser.add_argument("--out", default="/tmp/text_classifier.pt")
    train(parser.parse_args())
