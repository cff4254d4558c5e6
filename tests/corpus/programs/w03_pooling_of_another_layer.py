# max_pool2d_with_indices_backward with the indices of a larger layer: it trusts them
import torch


def unpool(grad, layer, indices):
    return torch.ops.aten.max_pool2d_with_indices_backward(
        grad, layer, [2, 2], [2, 2], [0, 0], [1, 1], False, indices
    )


layer = torch.randn(1, 1, 4, 4)
pooled, indices = torch.nn.functional.max_pool2d(layer, 2, return_indices=True)
print(unpool(pooled, layer, indices).sum())
print(unpool(pooled, layer, indices * 50_000_000_000).sum())
