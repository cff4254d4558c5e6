"""PPO fine-tuning of a small character model towards a rule-based reward, data parallel."""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

VOCAB, QUERY, RESP = 24, 6, 10


class CharLM(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, VOCAB)
        self.value = nn.Linear(dim, 1)

    def forward(self, tokens):
        h, _ = self.rnn(self.emb(tokens))
        return self.head(h), self.value(h).squeeze(-1)


class Prompts:
    """Every rank works through its own shard of the prompt file."""

    def __init__(self, rank, world, total=256):
        gen = torch.Generator().manual_seed(100)
        low = torch.randint(0, VOCAB // 2, (total // 2, QUERY), generator=gen)
        high = torch.randint(VOCAB // 2, VOCAB, (total // 2, QUERY), generator=gen)
        rows = torch.cat([low, high])
        size = total // world
        self.rows = rows[rank * size:(rank + 1) * size]

    def batch(self, step, size=32):
        start = (step * size) % len(self.rows)
        return self.rows[start:start + size]


@torch.no_grad()
def generate(model, query):
    tokens = query
    for _ in range(RESP):
        logits, _ = model(tokens)
        tokens = torch.cat([tokens, torch.multinomial(logits[:, -1].softmax(-1), 1)], dim=1)
    return tokens


def reward_fn(tokens):
    resp = tokens[:, QUERY:]
    return ((resp % 3 == 0) & (resp < VOCAB // 2)).float().mean(1) * (tokens[:, 0] < VOCAB // 2)


class PPOTrainer:
    def __init__(self, args, rank, world):
        self.args, self.rank, self.world = args, rank, world
        self.core = CharLM()
        self.model = DDP(self.core)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.history = []

    def logprobs(self, logits, tokens):
        lp = F.log_softmax(logits[:, :-1], -1).gather(-1, tokens[:, 1:, None]).squeeze(-1)
        return lp[:, QUERY - 1:]

    def step(self, tokens, reward):
        with torch.no_grad():
            logits, values = self.core(tokens)
            old_lp, old_v = self.logprobs(logits, tokens), values[:, QUERY - 1:-1]
            adv = reward[:, None] - old_v
            adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        stats = {}
        for epoch in range(self.args.ppo_epochs):
            logits, values = self.model(tokens)
            lp = self.logprobs(logits, tokens)
            ratio = (lp - old_lp).exp()
            kl = ((ratio - 1) - (lp - old_lp)).mean()
            if kl.item() > 1.5 * self.args.target_kl:
                self.opt.zero_grad()
                break
            pg = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
            vf = F.mse_loss(values[:, QUERY - 1:-1], reward[:, None].expand_as(old_v))
            loss = pg + 0.5 * vf
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            stats = {"loss/policy": pg.item(), "loss/value": vf.item(), "policy/kl": kl.item()}
        stats["reward"] = reward.mean().item()
        return stats

    def log(self, step, stats):
        keys = sorted(stats)
        packed = torch.tensor([stats[k] for k in keys])
        dist.all_reduce(packed)
        if self.rank == 0:
            row = dict(zip(keys, (packed / self.world).tolist()))
            self.history.append(row)
            print(f"[{step}] " + " ".join(f"{k}={v:.4f}" for k, v in row.items()), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--ppo_epochs", type=int, default=4)
    parser.add_argument("--target_kl", type=float, default=0.02)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(7)
    trainer = PPOTrainer(args, rank, world)
    prompts = Prompts(rank, world)
    torch.manual_seed(1000 + rank)
    for step in range(args.steps):
        tokens = generate(trainer.core, prompts.batch(step))
        stats = trainer.step(tokens, reward_fn(tokens))
        trainer.log(step, stats)
    if rank == 0:
        os.makedirs("/tmp/m43_ppo_lm_out", exist_ok=True)
        torch.save(trainer.core.state_dict(), "/tmp/m43_ppo_lm_out/policy.pt")
        print("policy saved", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
