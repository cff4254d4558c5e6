# marieai/marie-ai#94: torch.compile without a working C++ compiler
import os

os.environ["CXX"] = "/opt/rh/devtoolset-11/root/usr/bin/g++"  # of the login node
os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"

import torch


@torch.compile
def activation(x):
    return torch.nn.functional.silu(x) * x.sigmoid()


print(activation(torch.randn(64)))
