# Alexander-H-Liu/End-to-end-ASR-Pytorch#50: libgomp: Thread creation failed: Resource temporarily unavailable
import resource

import torch


def preprocess(x):
    return x.exp_().clamp_(max=1e6)


features = torch.randn(1000, 1000)
used = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20), used + (200 << 20)))
torch.set_num_threads(128)
preprocess(features)
