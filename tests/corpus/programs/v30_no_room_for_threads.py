# Alexander-H-Liu/End-to-end-ASR-Pytorch#50: libgomp: Thread creation failed: Resource temporarily unavailable
import resource

import torch


def preprocess(x):
    return torch.sort(x, dim=0)[0].exp().sum()


used = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20), used + (200 << 20)))
torch.set_num_threads(128)
print(preprocess(torch.randn(1000, 1000)))
