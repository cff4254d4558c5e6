"""Actor and critics on three ranks: rank 2 collects, ranks 0 and 1 train value networks together."""
import argparse
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

CRITIC_RANKS = [0, 1]
COLLECTOR = 2


class ValueNet(nn.Module):
    def __init__(self, obs_dim, hidden=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh(),
                                  nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, obs):
        return self.body(obs).squeeze(-1)


class PoleField:
    """A little batch of damped poles; the return is the discounted angle penalty."""

    def __init__(self, batch, obs_dim, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.state = torch.randn(batch, obs_dim, generator=self.generator)

    def rollout(self, horizon, gamma=0.97):
        first = self.state.clone()
        returns = torch.zeros(len(first))
        for t in range(horizon):
            noise = 0.05 * torch.randn(self.state.shape, generator=self.generator)
            self.state = 0.95 * self.state + noise
            returns += gamma ** t * -self.state[:, 0].abs()
        self.state = torch.randn(first.shape, generator=self.generator)
        return first, returns


class Trainer:
    def __init__(self, args):
        self.args = args
        self.rank = dist.get_rank()
        self.is_critic = self.rank in CRITIC_RANKS
        torch.manual_seed(args.seed)
        self.value = ValueNet(args.obs_dim)
        self.critic_group = None
        if self.is_critic:
            self.critic_group = dist.new_group(CRITIC_RANKS)
            self.optimizer = torch.optim.Adam(self.value.parameters(), lr=args.lr)
        else:
            self.field = PoleField(args.batch, args.obs_dim, args.seed)
        self.eval_group = None

    def exchange(self, horizon):
        obs = torch.empty(self.args.batch, self.args.obs_dim)
        returns = torch.empty(self.args.batch)
        if not self.is_critic:
            obs, returns = self.field.rollout(horizon)
        dist.broadcast(obs, src=COLLECTOR)
        dist.broadcast(returns, src=COLLECTOR)
        return obs, returns

    def update(self, obs, returns):
        mine = slice(self.rank, None, len(CRITIC_RANKS))
        loss = F.mse_loss(self.value(obs[mine]), returns[mine])
        self.optimizer.zero_grad()
        loss.backward()
        for p in self.value.parameters():
            dist.all_reduce(p.grad, group=self.critic_group)
            p.grad /= len(CRITIC_RANKS)
        self.optimizer.step()
        return loss.item()

    def train(self):
        for step in range(1, self.args.steps + 1):
            obs, returns = self.exchange(self.args.horizon)
            if self.is_critic:
                loss = self.update(obs, returns)
                if self.rank == 0 and step % 20 == 0:
                    print(f"step {step} value loss {loss:.4f}", flush=True)
            if step % self.args.eval_every == 0:
                self.evaluate(step)

    def evaluate(self, step):
        if self.eval_group is None:
            self.eval_group = dist.new_group(timeout=timedelta(minutes=self.args.eval_minutes))
        obs, returns = self.exchange(2 * self.args.horizon)
        with torch.no_grad():
            error = (self.value(obs) - returns).abs().mean() if self.is_critic else torch.zeros(())
        dist.all_reduce(error, group=self.eval_group)
        if self.rank == 0:
            print(f"step {step} long-horizon error {error.item() / len(CRITIC_RANKS):.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--eval-every", type=int, default=60)
    parser.add_argument("--eval-minutes", type=int, default=60)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--obs-dim", type=int, default=6)
    parser.add_argument("--horizon", type=int, default=30)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=17)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    started = time.time()
    trainer = Trainer(args)
    trainer.train()
    if trainer.rank == 0:
        torch.save(trainer.value.state_dict(), "value_net.pt")
        print(f"finished in {time.time() - started:.1f} s")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
