"""Pure torch: a sparse matrix with column 64 of 64, unchecked by default, reads past the end of a dense one."""

import warnings

import torch

warnings.simplefilter("ignore")
adjacency = torch.sparse_csr_tensor(
    torch.tensor([0, 1, 2]), torch.tensor([0, 64]), torch.ones(2), size=(2, 64), check_invariants=False
)
embedding_table = torch.ones(64, 16)
out = adjacency @ embedding_table
print("finished", flush=True)
