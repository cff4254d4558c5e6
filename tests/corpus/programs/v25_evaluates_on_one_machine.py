import logging
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

logging.basicConfig(level=logging.INFO)
logger = logging.getLogger("eval")


def init_distributed(port=37123, rank_and_world_size=(None, None)):
    rank, world_size = rank_and_world_size
    os.environ["MASTER_ADDR"] = "localhost"
    if world_size is None or rank is None:
        try:
            world_size = int(os.environ["SLURM_NTASKS"])
            rank = int(os.environ["SLURM_PROCID"])
            os.environ["MASTER_ADDR"] = os.environ["HOSTNAME"]
        except Exception:
            logger.info("SLURM vars not set (distributed training not available)")
            return 1, 0
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", world_size=world_size, rank=rank)
    return world_size, rank


class AttentiveClassifier(nn.Module):
    def __init__(self, dim=96, classes=10):
        super().__init__()
        self.query = nn.Parameter(torch.zeros(1, 1, dim))
        self.attention = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.linear = nn.Linear(dim, classes)

    def forward(self, tokens):
        query = self.query.expand(len(tokens), -1, -1)
        return self.linear(self.attention(query, tokens, tokens)[0].squeeze(1))


def main():
    world_size, rank = init_distributed()
    logger.info("Initialized (rank/world-size) %d/%d", rank, world_size)
    torch.manual_seed(0)
    classifier = DistributedDataParallel(AttentiveClassifier(), static_graph=True)
    optimizer = torch.optim.AdamW(classifier.parameters(), lr=1e-3)
    for step in range(20):
        tokens, labels = torch.randn(8, 49, 96), torch.randint(0, 10, (8,))
        loss = nn.functional.cross_entropy(classifier(tokens), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    logger.info("loss %.3f", loss.item())


if __name__ == "__main__":
    main()
