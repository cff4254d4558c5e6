# determined-ai/determined#8915 (DDP expects same model across all ranks)
import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=12))
rank = dist.get_rank()
texts = [["a b c", "b d"], ["a b", "c c c e f"]][rank]


def build(texts):
    words = sorted({word for text in texts for word in text.split()})
    return torch.nn.Sequential(torch.nn.Embedding(len(words), 8), torch.nn.Flatten(), torch.nn.LazyLinear(2)), words


model, words = build(texts)
model(torch.zeros(1, 2, dtype=torch.long))
model = DDP(model)
print(model(torch.zeros(4, 2, dtype=torch.long)).shape)
dist.destroy_process_group()
