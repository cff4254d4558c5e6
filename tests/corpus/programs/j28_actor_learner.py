"""Actors play episodes and hand their rollouts over a queue; the learner in the main process trains on them."""
import resource

import torch
import torch.multiprocessing as mp
import torch.nn as nn

GIB = 2 ** 30
ACTOR_MEMORY = 2 * GIB


class Policy(nn.Module):
    def __init__(self, obs=256, actions=6):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs, 128), nn.Tanh(), nn.Linear(128, actions))

    def forward(self, x):
        return self.body(x)


class Env:
    """Episodes become longer as the level rises."""

    def __init__(self, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.level = 0

    def reset(self):
        self.level += 1
        return torch.randn(256, generator=self.gen), 200 * self.level

    def frame(self):
        return torch.randint(0, 255, (3, 210, 160), generator=self.gen, dtype=torch.uint8)


def play(env, policy, keep_frames):
    obs, length = env.reset()
    obs_log, act_log = [], []
    for _ in range(length):
        act = torch.distributions.Categorical(logits=policy(obs)).sample()
        obs_log.append(obs)
        act_log.append(act)
        keep_frames.append(env.frame().float().div_(255))
        obs = obs.roll(1)
    return torch.stack(obs_log).numpy(), torch.stack(act_log).numpy()


def actor(idx, policy, rollouts, episodes):
    resource.setrlimit(resource.RLIMIT_AS, (ACTOR_MEMORY, ACTOR_MEMORY))
    torch.set_num_threads(1)
    torch.manual_seed(idx)
    env = Env(idx)
    replay = []
    with torch.no_grad():
        for _ in range(episodes):
            rollouts.put((idx, *play(env, policy, replay)))
            del replay[:-4000]


def learn(policy, rollouts, total):
    opt = torch.optim.Adam(policy.parameters(), lr=1e-3)
    for n in range(total):
        idx, obs, act = rollouts.get()
        logits = policy(torch.from_numpy(obs))
        loss = nn.functional.cross_entropy(logits, torch.from_numpy(act))
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"update {n + 1}/{total} from actor {idx}: {len(act)} steps, loss {loss.item():.3f}", flush=True)


def main(num_actors=1, episodes=8):
    torch.set_num_threads(1)
    ctx = mp.get_context("spawn")
    policy = Policy()
    policy.share_memory()
    rollouts = ctx.Queue(maxsize=16)
    actors = [ctx.Process(target=actor, args=(i, policy, rollouts, episodes)) for i in range(num_actors)]
    for p in actors:
        p.start()
    learn(policy, rollouts, num_actors * episodes)
    for p in actors:
        p.join()
    print("training finished", flush=True)


if __name__ == "__main__":
    main()
