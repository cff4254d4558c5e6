import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

VOCAB, DIM, SEQ = 64, 32, 16
BATCH_SIZE, MICROBATCHES = 8, 3


class Stage(nn.Module):
    def __init__(self, index, last):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM) if index == 0 else None
        self.layer = nn.TransformerEncoderLayer(DIM, 4, DIM * 2, dropout=0.0, batch_first=True)
        self.output = nn.Linear(DIM, VOCAB) if last else None

    def forward(self, x):
        h = self.embed(x) if self.embed is not None else x
        h = self.layer(h)
        return self.output(h) if self.output is not None else h


def loss_fn(pred, labels):
    return F.cross_entropy(pred.flatten(0, 1), labels.flatten())


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    model = Stage(rank, rank == world - 1)
    stage = PipelineStage(model, rank, world, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=MICROBATCHES, loss_fn=loss_fn)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(0)
    for step in range(5):
        tokens = torch.randint(0, VOCAB, (BATCH_SIZE, SEQ + 1), generator=generator)
        input_ids, labels = tokens[:, :-1], tokens[:, 1:]
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(input_ids)
        else:
            losses = []
            schedule.step(target=labels, losses=losses)
            print(f"step {step} loss {torch.stack(losses).mean().item():.3f}", flush=True)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
