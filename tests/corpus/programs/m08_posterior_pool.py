import torch
from torch import nn
from torch.multiprocessing import get_context


class GuideNet(nn.Module):
    def __init__(self, latent=4):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.Softplus(), nn.Linear(32, 2 * latent))

    def forward(self, obs):
        loc, log_scale = self.net(obs).chunk(2, -1)
        return loc, log_scale.exp()


def simulate(seed):
    g = torch.Generator().manual_seed(seed)
    theta = torch.randn(4, generator=g)
    return torch.cat([theta, theta.square()]) + 0.1 * torch.randn(8, generator=g)


def sample_posterior(job):
    seed, n = job
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    guide = GuideNet()
    with torch.no_grad():
        loc, scale = guide(simulate(seed))
        draws = loc + scale * torch.randn(n, loc.numel())
    return draws.mean(0)


def run_experiments(seeds, workers=1):
    jobs = [(s, 2000) for s in seeds]
    results = []
    with get_context("fork").Pool(workers, maxtasksperchild=1) as pool:
        for mean in pool.imap(sample_posterior, jobs):
            results.append(mean)
            print(f"{len(results)}/{len(jobs)} {mean.tolist()}", flush=True)
    return torch.stack(results)


def main():
    means = run_experiments(range(12))
    print("spread over experiments:", means.std(0).tolist())


if __name__ == "__main__":
    main()
