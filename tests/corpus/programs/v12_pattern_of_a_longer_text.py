"""Sparse attention: the pattern of allowed pairs is made once and used for all texts."""

import torch


class Pattern:
    cache = {}

    @classmethod
    def window(cls, length, stride):
        if stride not in cls.cache:
            row = torch.arange(length).repeat_interleave(3)
            col = (row + torch.tensor([0, stride, 2 * stride]).repeat(length)) % length
            cls.cache[stride] = (row.view(length, 3), col.view(length, 3))
        _, col = cls.cache[stride]
        crow = torch.arange(0, 3 * length + 1, 3)
        col = col[:length].sort(1).values.flatten()
        return torch.sparse_csr_tensor(crow, col, torch.zeros(3 * length), (length, length))


def attention(query, key, stride):
    pattern = Pattern.window(len(query), stride)
    return torch.sparse.sampled_addmm(pattern, query, key.t(), beta=0.0)


def main(texts, width=16):
    stride = 2_500_000
    for length in texts:
        query, key = torch.rand(length, width), torch.rand(length, width)
        scores = attention(query, key, stride)
        print(length, scores.values().mean().item())


main([6_000_000, 1000])
