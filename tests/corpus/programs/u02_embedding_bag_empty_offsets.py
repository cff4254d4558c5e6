# pytorch/pytorch#175370
import torch
import torch.nn.functional as F

table = torch.nn.Parameter(torch.zeros(100, 10, dtype=torch.float64))


def bag(batch):
    tokens = torch.tensor([t for doc in batch for t in doc])
    starts = torch.tensor([0] * 0, dtype=torch.long) if len(batch) == 1 else torch.tensor([0, len(batch[0])])
    return F.embedding_bag(tokens, table, starts, mode="sum")


print(bag([[1, 2], [3]]).shape)
print(bag([[4, 5, 6, 7, 8, 9]]).shape)
