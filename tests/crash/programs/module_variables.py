"""Spreads gradients to where the pooled values were, in a script without functions; one index is none."""

import torch

images = torch.randn(1, 4, 8, 8)
pooled, places = torch.nn.functional.adaptive_max_pool2d(images, 2, return_indices=True)
places[0, 0, 0, 0] = 100_000_000_000
gradient = torch.ones_like(pooled)
torch.ops.aten.adaptive_max_pool2d_backward(gradient, images, places)
