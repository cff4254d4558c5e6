"""Actor-learner training: rank 0 trains the policy, the other rank rolls it out with synced weights."""
import logging
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

OBS, ACTIONS = 32, 6
BUCKET_BYTES = 96 * 1024

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("sync")


class Policy(nn.Module):
    def __init__(self, width=128, depth=4):
        super().__init__()
        self.stem = nn.Linear(OBS, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(depth)
        )
        self.actor = nn.Linear(width, ACTIONS)
        self.critic = nn.Linear(width, 1)

    def forward(self, obs):
        h = self.stem(obs)
        for block in self.blocks:
            h = h + block(h)
        return self.actor(h), self.critic(h).squeeze(-1)


class BucketSyncer:
    """Sends the weights of the learner to the rollout ranks in buckets of limited size."""

    def __init__(self, model, bucket_bytes=BUCKET_BYTES):
        self.state = model.state_dict()
        self.bucket_bytes = bucket_bytes
        self.names = {name for name in self.state if not name.startswith("critic.")}

    def buckets(self):
        bucket, size = [], 0
        for name in self.names:
            tensor = self.state[name]
            nbytes = tensor.numel() * tensor.element_size()
            if bucket and size + nbytes > self.bucket_bytes:
                yield bucket
                bucket, size = [], 0
            bucket.append(name)
            size += nbytes
        if bucket:
            yield bucket

    @torch.no_grad()
    def sync(self, src=0):
        for bucket in self.buckets():
            flat = torch.cat([self.state[name].reshape(-1) for name in bucket])
            dist.broadcast(flat, src=src)
            offset = 0
            for name in bucket:
                tensor = self.state[name]
                tensor.copy_(flat[offset:offset + tensor.numel()].view_as(tensor))
                offset += tensor.numel()


class Environment:
    def __init__(self, seed, count=64):
        self.gen = torch.Generator().manual_seed(seed)
        self.target = torch.randn(OBS, ACTIONS, generator=torch.Generator().manual_seed(11))
        self.count = count

    def observe(self):
        return torch.randn(self.count, OBS, generator=self.gen)

    def reward(self, obs, action):
        return (obs @ self.target).gather(1, action[:, None]).squeeze(1) / OBS ** 0.5


@torch.no_grad()
def rollout(policy, env, steps=8):
    obs, actions, rewards = [], [], []
    for _ in range(steps):
        o = env.observe()
        logits, _ = policy(o)
        a = torch.distributions.Categorical(logits=logits).sample()
        obs.append(o)
        actions.append(a)
        rewards.append(env.reward(o, a))
    return torch.cat(obs), torch.cat(actions), torch.cat(rewards)


def update(policy, optimizer, obs, action, reward):
    logits, value = policy(obs)
    advantage = reward - value
    logp = torch.distributions.Categorical(logits=logits).log_prob(action)
    loss = -(logp * advantage.detach()).mean() + 0.5 * F.mse_loss(value, reward)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
    env = Environment(seed=100 + rank)
    syncer = BucketSyncer(policy)
    log.info("rank %d: policy with %d parameters", rank, sum(p.numel() for p in policy.parameters()))

    if rank == 0:
        for step in range(40):
            update(policy, optimizer, *rollout(policy, env))
        log.info("learner warmed up")
    start = time.time()
    for iteration in range(20):
        syncer.sync(src=0)
        obs, action, reward = rollout(policy, env)
        mean = reward.mean()
        dist.all_reduce(mean)
        if rank == 0:
            loss = update(policy, optimizer, obs, action, reward)
            log.info("iteration %d loss %.4f reward %.4f (%.1fs)", iteration, loss,
                     mean.item() / dist.get_world_size(), time.time() - start)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
