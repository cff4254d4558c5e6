import argparse
import os

import torch
import torch.nn as nn
import torch.nn.functional as F


class SmallLM(nn.Module):
    def __init__(self, vocab_size, hidden=256, layers=2, heads=4):
        super().__init__()
        self.vocab_size = vocab_size
        self.tok = nn.Embedding(vocab_size, hidden)
        block = nn.TransformerEncoderLayer(hidden, heads, 4 * hidden, batch_first=True, dropout=0.0)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(hidden)
        nn.init.normal_(self.tok.weight, std=0.02)

    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.size(1))
        h = self.norm(self.blocks(self.tok(ids), mask=mask, is_causal=True))
        return h @ self.tok.weight.t()

    def resize_token_embeddings(self, new_size):
        old = self.tok.weight.data
        self.tok = nn.Embedding(new_size, old.size(1))
        self.tok.weight.data[: old.size(0)] = old
        self.vocab_size = new_size


def build_optimizer(model, lr):
    decay, no_decay = [], []
    for name, p in model.named_parameters():
        (no_decay if p.ndim < 2 else decay).append(p)
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), fused=True)


def run_steps(model, optimizer, steps, batch_size, seq_len, tag):
    model.train()
    for step in range(steps):
        ids = torch.randint(0, model.vocab_size, (batch_size, seq_len + 1))
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"[{tag}] step {step} loss {loss.item():.3f}", flush=True)


def pretrain(args):
    model = SmallLM(args.vocab_size)
    optimizer = build_optimizer(model, 3e-4)
    run_steps(model, optimizer, 3, args.batch_size, args.seq_len, "pretrain")
    torch.save({"model": model.state_dict(), "optim": optimizer.state_dict()}, args.ckpt)


def finetune(args):
    ckpt = torch.load(args.ckpt, map_location="cpu")
    model = SmallLM(args.vocab_size)
    model.load_state_dict(ckpt["model"])
    model.resize_token_embeddings(args.vocab_size + args.added_tokens)
    optimizer = build_optimizer(model, 1e-5)
    if args.load_optimizer:
        optimizer.load_state_dict(ckpt["optim"])
    print("resumed from", os.path.basename(args.ckpt), "vocab", model.vocab_size, flush=True)
    run_steps(model, optimizer, 10, args.batch_size, args.seq_len, "sft")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--vocab-size", type=int, default=4000)
    parser.add_argument("--added-tokens", type=int, default=40000)
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--seq-len", type=int, default=32)
    parser.add_argument("--ckpt", default="/tmp/i21_pretrain.pt")
    parser.add_argument("--load-optimizer", action=argparse.BooleanOptionalAction, default=True)
    args = parser.parse_args()
    torch.manual_seed(0)
    pretrain(args)
    finetune(args)
