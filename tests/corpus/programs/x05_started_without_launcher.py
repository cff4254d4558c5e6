# meta-llama/llama-cookbook#59: a distributed program is started by python
import torch
import torch.distributed as dist


def setup():
    dist.init_process_group("gloo")


def main():
    setup()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 2))
    model(torch.randn(4, 8)).sum().backward()


main()
