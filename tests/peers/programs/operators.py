"""operators.py FILE EVERY: each EVERY-th operator of torch's OpInfo database on its samples.

Writes a line of JSON for each sample, with a hash of the result's bits.
"""

import hashlib
import json
import sys
import warnings

import torch
from torch.testing._internal.common_methods_invocations import op_db

MOST_SAMPLES = 12
# Their results are not determined by their input.
RANDOM = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}


def bits(value, digest):
    """All tensors in a result, and the shape of everything else."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        digest.update(repr((value.dtype, tuple(value.shape), value.layout)).encode())
        if value.layout is torch.strided and not value.is_quantized:
            dense = value.resolve_conj().resolve_neg().contiguous()
            digest.update(
                dense.view(torch.uint8).numpy().tobytes()
                if dense.dim()
                else dense.reshape(1).view(torch.uint8).numpy().tobytes()
            )
    elif isinstance(value, (list, tuple)):
        for item in value:
            bits(item, digest)
    elif not callable(value):
        digest.update(repr(value).encode())


def one(op, sample, differentiable):
    torch.manual_seed(7)
    result = op(sample.input, *sample.args, **sample.kwargs)
    digest = hashlib.sha256()
    bits(result, digest)
    first = result[0] if isinstance(result, (list, tuple)) and result else result
    if differentiable and isinstance(first, torch.Tensor) and first.requires_grad and first.layout is torch.strided:
        inputs = [t for t in [sample.input, *sample.args] if isinstance(t, torch.Tensor) and t.requires_grad]
        if inputs:
            grads = torch.autograd.grad(
                first.sum() if not first.is_complex() else first.abs().sum(), inputs, allow_unused=True
            )
            bits([g for g in grads if g is not None], digest)
    return digest.hexdigest()[:16]


def main():
    path, every = sys.argv[1], int(sys.argv[2])
    warnings.simplefilter("ignore")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    with open(path, "w", encoding="utf-8") as file:
        for op in op_db[::every]:
            name = f"{op.name}.{op.variant_test_name}".rstrip(".")
            if op.name in RANDOM or torch.float32 not in op.dtypes:
                continue
            torch.manual_seed(7)
            try:
                differentiable = torch.float32 in op.backward_dtypes
                samples = list(op.sample_inputs("cpu", torch.float32, requires_grad=differentiable))[:MOST_SAMPLES]
            except Exception as error:
                file.write(json.dumps([name, "no samples: " + type(error).__name__]) + "\n")
                continue
            for number, sample in enumerate(samples):
                try:
                    result = one(op, sample, differentiable)
                except Exception as error:
                    result = "error: " + type(error).__name__
                file.write(json.dumps([f"{name} {number}", result]) + "\n")
                file.flush()


main()
