"""Character model on generated letters: pre-train, then fine-tune, with a resumable checkpoint per phase."""
import argparse
import random
import resource
import time
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

OPENINGS = ["dear colleague", "dear neighbour", "to whom it may concern", "good morning"]
TOPICS = ["the water meter", "our last meeting", "the parking permit", "your invoice", "the garden fence"]
CLOSINGS = ["kind regards", "yours sincerely", "with best wishes"]
ALPHABET = "\n abcdefghijklmnopqrstuvwxyz.,"


def reserve_output(folder, megabytes):
    folder.mkdir(parents=True, exist_ok=True)
    size = megabytes * 1024 * 1024
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def write_letters(path, count, seed):
    rng = random.Random(seed)
    with open(path, "w") as stream:
        for _ in range(count):
            body = f"i am writing about {rng.choice(TOPICS)} and {rng.choice(TOPICS)}."
            stream.write(f"{rng.choice(OPENINGS)},\n{body}\n{rng.choice(CLOSINGS)}\n\n")


def encode(path):
    table = {char: number for number, char in enumerate(ALPHABET)}
    return torch.tensor([table[char] for char in Path(path).read_text()])


class CharModel(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.embed = nn.Embedding(len(ALPHABET), width)
        self.rnn = nn.GRU(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, len(ALPHABET))

    def forward(self, tokens):
        return self.head(self.rnn(self.embed(tokens))[0])


class Trainer:
    def __init__(self, model, folder):
        self.model = model
        self.folder = folder
        self.step = 0

    def batches(self, tokens, length, size, steps):
        for _ in range(steps):
            starts = torch.randint(0, len(tokens) - length - 1, (size,))
            window = torch.stack([tokens[s:s + length + 1] for s in starts.tolist()])
            yield window[:, :-1], window[:, 1:]

    def run(self, phase, tokens, optimizer, steps):
        started = time.monotonic()
        for inputs, targets in self.batches(tokens, 32, 8, steps):
            loss = F.cross_entropy(self.model(inputs).flatten(0, 1), targets.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            optimizer.step()
            self.step += 1
            if self.step % 5 == 0:
                print(f"{phase}: step {self.step} loss {loss.item():.3f}", flush=True)
        print(f"{phase}: {time.monotonic() - started:.1f} s", flush=True)

    def save(self, name, optimizer):
        state = {
            "model": self.model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "step": self.step,
        }
        target = self.folder / f"{name}.pt"
        torch.save(state, target)
        print(f"saved {target} ({target.stat().st_size / 2**20:.1f} MB)", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, default=Path("output"))
    parser.add_argument("--output-mb", type=int, default=12)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    reserve_output(args.output, args.output_mb)
    write_letters(args.output / "general.txt", 400, seed=1)
    write_letters(args.output / "office.txt", 100, seed=2)

    model = CharModel(args.width, args.layers)
    trainer = Trainer(model, args.output)
    pretraining = torch.optim.SGD(model.parameters(), lr=0.5)
    trainer.run("pretrain", encode(args.output / "general.txt"), pretraining, args.steps)
    trainer.save("pretrain", pretraining)

    tuning = torch.optim.AdamW(model.parameters(), lr=1e-3)
    trainer.run("finetune", encode(args.output / "office.txt"), tuning, args.steps)
    trainer.save("finetune", tuning)
    print("finished", flush=True)


if __name__ == "__main__":
    main()
