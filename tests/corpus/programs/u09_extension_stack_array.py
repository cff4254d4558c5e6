# stack array in a thread of an extension: pytorch/audio-style resampling
import torch
import os
from torch.utils.cpp_extension import load
here = os.path.dirname(os.path.abspath(__file__))
userops = load("userops", [os.path.join(here, "userops.cpp")], extra_cflags=["-O1", "-g", "-fopenmp"], extra_ldflags=["-fopenmp"])


def features(wave):
    return userops.resample(wave)


print(features(torch.randn(16000)))
