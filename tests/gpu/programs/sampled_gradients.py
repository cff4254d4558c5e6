"""Exchange a random sample of the gradients through a DDP communication hook."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

DEVICE = torch.device("cuda", 0)


class SampleState:
    """The sampled positions of each bucket, equal on all ranks."""

    def __init__(self, share: float) -> None:
        """Keep the share of gradients to exchange."""
        self.share = share
        self.positions: dict[int, torch.Tensor] = {}

    def chosen(self, bucket: dist.GradBucket) -> torch.Tensor:
        """Return the sampled positions of a bucket."""
        if bucket.index() not in self.positions:
            size = bucket.buffer().numel()
            order = torch.randperm(size, generator=torch.Generator().manual_seed(bucket.index()))
            self.positions[bucket.index()] = order[: int(size * self.share)].to(DEVICE)
        return self.positions[bucket.index()]


def exchange_sample(state: SampleState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average the sampled gradients over the ranks."""
    buffer = bucket.buffer()
    positions = state.chosen(bucket)
    values = buffer[positions]
    host = values.cpu()
    dist.all_reduce(host)
    buffer[positions] = host.to(DEVICE) / dist.get_world_size()
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(buffer)
    return future


def main() -> None:
    """Train on all ranks."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layers = [nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 64)]
    model = DistributedDataParallel(nn.Sequential(*layers).to(DEVICE), device_ids=[0], bucket_cap_mb=2)
    model.register_comm_hook(SampleState(0.1), exchange_sample)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(8):
        loss = model(torch.randn(64, 512, device=DEVICE)).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        print(f"rank {dist.get_rank()} step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
