import torch
import torch.nn as nn
from torch.distributions import Categorical


class ActorCritic(nn.Module):
    def __init__(self, obs_dim=4, n_actions=2):
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(obs_dim, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.action_net = nn.Linear(64, n_actions)
        self.value_net = nn.Linear(64, 1)

    def forward(self, obs):
        latent = self.shared(obs)
        return Categorical(logits=self.action_net(latent)), self.value_net(latent).squeeze(-1)


class PPO:
    def __init__(self, n_steps=129, batch_size=64, n_epochs=4, clip_range=0.2, lr=3e-4):
        self.n_steps, self.batch_size, self.n_epochs, self.clip_range = n_steps, batch_size, n_epochs, clip_range
        self.policy = ActorCritic()
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=lr, eps=1e-5)
        self.obs = torch.zeros(4)

    def collect_rollouts(self):
        data = []
        for _ in range(self.n_steps):
            with torch.no_grad():
                dist, value = self.policy(self.obs.unsqueeze(0))
                action = dist.sample()
            reward = 1.0 - self.obs.abs().mean().item()
            data.append((self.obs, action[0], dist.log_prob(action)[0], value[0], torch.tensor(reward)))
            self.obs = (0.9 * self.obs + 0.1 * torch.randn(4) + 0.05 * (2 * action.item() - 1)).clamp(-2, 2)
        obs, actions, log_probs, values, rewards = map(torch.stack, zip(*data))
        returns = rewards.flip(0).cumsum(0).flip(0) / self.n_steps
        return obs, actions, log_probs, returns - values, returns

    def train(self, rollout):
        for _ in range(self.n_epochs):
            indices = torch.randperm(self.n_steps)
            for start in range(0, self.n_steps, self.batch_size):
                batch = indices[start:start + self.batch_size]
                obs, actions, old_log_prob, advantages, returns = (x[batch] for x in rollout)
                advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
                dist, values = self.policy(obs)
                ratio = torch.exp(dist.log_prob(actions) - old_log_prob)
                clipped = torch.clamp(ratio, 1 - self.clip_range, 1 + self.clip_range)
                policy_loss = -torch.min(advantages * ratio, advantages * clipped).mean()
                loss = policy_loss + 0.5 * nn.functional.mse_loss(values, returns) - 0.01 * dist.entropy().mean()
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.policy.parameters(), 0.5)
                self.optimizer.step()

    def learn(self, total_timesteps):
        for _ in range(total_timesteps // self.n_steps):
            self.train(self.collect_rollouts())


if __name__ == "__main__":
    torch.manual_seed(0)
    PPO().learn(total_timesteps=10_000)
