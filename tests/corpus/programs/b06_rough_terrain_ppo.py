import torch
from torch import nn
from torch.distributions import Normal


class ActorCritic(nn.Module):
    def __init__(self, num_obs, num_actions):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(num_obs, 64), nn.ELU(), nn.Linear(64, num_actions))
        self.critic = nn.Sequential(nn.Linear(num_obs, 64), nn.ELU(), nn.Linear(64, 1))
        self.std = nn.Parameter(torch.ones(num_actions))
        Normal.set_default_validate_args(False)

    def update_distribution(self, obs):
        mean = self.actor(obs)
        self.distribution = Normal(mean, mean * 0.0 + self.std)

    def act(self, obs):
        self.update_distribution(obs)
        return self.distribution.sample()


class RoughTerrainEnv:
    def __init__(self, num_envs=64, num_obs=12, num_actions=4, target_height=0.74, max_distance=0.91):
        self.num_envs, self.num_obs = num_envs, num_obs
        self.velocity = torch.zeros(num_envs, num_actions)
        self.target_height, self.max_distance = target_height, max_distance

    def height_scan(self):
        distance = 0.7 + 0.05 * torch.randn(self.num_envs, 16)
        distance[distance > self.max_distance] = float("inf")
        return distance

    def base_height_reward(self):
        height = self.height_scan().mean(dim=1)
        return -torch.square(height - self.target_height)

    def step(self, actions):
        self.velocity = 0.9 * self.velocity + 0.1 * actions
        obs = torch.randn(self.num_envs, self.num_obs) + self.velocity.sum(dim=1, keepdim=True)
        rewards = torch.exp(-self.velocity.square().sum(dim=1)) + 10.0 * self.base_height_reward()
        return obs, rewards


def update(policy, optimizer, obs, actions, rewards):
    advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-8)
    policy.update_distribution(obs)
    log_prob = policy.distribution.log_prob(actions).sum(dim=-1)
    value_loss = (rewards - policy.critic(obs).squeeze(-1)).pow(2).mean()
    loss = -(advantages * log_prob).mean() + value_loss
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()


def learn(iterations=100):
    env = RoughTerrainEnv()
    policy = ActorCritic(env.num_obs, 4)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    obs = torch.zeros(env.num_envs, env.num_obs)
    for it in range(iterations):
        with torch.no_grad():
            actions = policy.act(obs)
        next_obs, rewards = env.step(actions)
        update(policy, optimizer, obs, actions, rewards)
        obs = next_obs
        if it % 10 == 0:
            print(f"iteration {it} mean reward {rewards.mean().item():.3f}")


if __name__ == "__main__":
    torch.manual_seed(5)
    torch.set_num_threads(1)
    learn()
