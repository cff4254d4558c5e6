# pytorch/pytorch#145267
import torch


def row_gradients(grad, tokens, vocabulary):
    return torch.ops.aten.embedding_dense_backward(grad, tokens, vocabulary, -1, True)


tokens = torch.tensor([7, 3, 100_000_000_000_000_000])
grad = torch.randn(3, 16)
print(row_gradients(grad, tokens % 50, 50).shape)
print(row_gradients(grad, tokens, 0).shape)
