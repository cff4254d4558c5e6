import argparse
import logging

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s - %(name)s - %(message)s")
logger = logging.getLogger("run_qa")


class SpanQuestions(Dataset):
    def __init__(self, count, length, vocab, seed):
        g = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(5, vocab, (count, length), generator=g)
        self.start = torch.randint(8, length - 6, (count,), generator=g)
        self.end = self.start + torch.randint(1, 5, (count,), generator=g)
        rows = torch.arange(count)
        self.tokens[:, 0] = 1
        self.tokens[rows, self.start] = 2
        self.tokens[rows, self.end] = 3
        self.segments = (torch.arange(length) >= 8).long().expand(count, length)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return self.tokens[i], self.segments[i], self.start[i], self.end[i]


class Embeddings(nn.Module):
    def __init__(self, vocab, hidden, positions):
        super().__init__()
        self.word = nn.Embedding(vocab, hidden)
        self.position = nn.Embedding(positions, hidden)
        self.segment = nn.Embedding(2, hidden)
        self.norm = nn.LayerNorm(hidden)

    def forward(self, tokens, segments):
        position = torch.arange(tokens.size(1)).expand_as(tokens)
        return self.norm(self.word(tokens) + self.position(position) + self.segment(segments))


class Pooler(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.dense = nn.Linear(hidden, hidden)

    def forward(self, states):
        return torch.tanh(self.dense(states[:, 0]))


class Encoder(nn.Module):
    def __init__(self, vocab, hidden, layers, heads, positions):
        super().__init__()
        self.embeddings = Embeddings(vocab, hidden, positions)
        self.layers = nn.ModuleList(
            [nn.TransformerEncoderLayer(hidden, heads, hidden * 4, 0.1, "gelu", batch_first=True) for _ in range(layers)]
        )
        self.pooler = Pooler(hidden)

    def forward(self, tokens, segments):
        states = self.embeddings(tokens, segments)
        for layer in self.layers:
            states = layer(states)
        return states, self.pooler(states)


class SpanModel(nn.Module):
    def __init__(self, encoder, hidden):
        super().__init__()
        self.encoder = encoder
        self.qa_outputs = nn.Linear(hidden, 2)

    def forward(self, tokens, segments, start=None, end=None):
        states, _ = self.encoder(tokens, segments)
        start_logits, end_logits = self.qa_outputs(states).float().unbind(-1)
        if start is None:
            return start_logits, end_logits
        return (F.cross_entropy(start_logits, start) + F.cross_entropy(end_logits, end)) / 2


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    exact = total = 0
    for tokens, segments, start, end in loader:
        s, e = model(tokens, segments)
        exact += ((s.argmax(1) == start) & (e.argmax(1) == end)).sum().item()
        total += len(tokens)
    return 100.0 * exact / total


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--train_batch_size", type=int, default=16)
    p.add_argument("--gradient_accumulation_steps", type=int, default=2)
    p.add_argument("--num_train_epochs", type=int, default=2)
    p.add_argument("--learning_rate", type=float, default=3e-4)
    p.add_argument("--loss_scale", type=float, default=128.0)
    p.add_argument("--bf16", type=int, default=1)
    args = p.parse_args()
    torch.manual_seed(42)

    hidden, vocab, length = 96, 1000, 64
    train = DataLoader(SpanQuestions(384, length, vocab, 1), batch_size=args.train_batch_size, shuffle=True)
    dev = DataLoader(SpanQuestions(128, length, vocab, 2), batch_size=32)
    model = SpanModel(Encoder(vocab, hidden, layers=3, heads=4, positions=length), hidden)
    no_decay = ("bias", "norm")
    named = list(model.named_parameters())
    optimizer = torch.optim.AdamW([
        {"params": [q for n, q in named if not any(k in n for k in no_decay)], "weight_decay": 0.01},
        {"params": [q for n, q in named if any(k in n for k in no_decay)], "weight_decay": 0.0},
    ], lr=args.learning_rate)
    logger.info("***** Running training *****  examples %d", len(train.dataset))
    logger.info("exact match before training %.2f", evaluate(model, dev))

    global_step = 0
    for epoch in range(args.num_train_epochs):
        model.train()
        for step, (tokens, segments, start, end) in enumerate(train):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bool(args.bf16)):
                loss = model(tokens, segments, start, end)
            loss = loss / args.gradient_accumulation_steps * args.loss_scale
            loss.backward()
            if (step + 1) % args.gradient_accumulation_steps == 0:
                if args.loss_scale != 1.0:
                    for param in model.parameters():
                        param.grad.data = param.grad.data / args.loss_scale
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                global_step += 1
        logger.info("epoch %d step %d loss %.4f", epoch, global_step, loss.item() / args.loss_scale)
        logger.info("exact match %.2f", evaluate(model, dev))


if __name__ == "__main__":
    main()
