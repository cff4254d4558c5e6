"""Each rank converts clips by a program, whose warnings go into a pipe that nobody reads; one clip has many."""

import datetime
import subprocess
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=12))
rank = dist.get_rank()
CONVERTER = "import sys; [print('frame', n, 'has no key', file=sys.stderr) for n in range(int(sys.argv[1]))]"


def convert(warnings):
    converter = subprocess.Popen([sys.executable, "-c", CONVERTER, str(warnings)], stderr=subprocess.PIPE)
    converter.wait()
    return converter.returncode


def epoch(clips):
    done = torch.zeros(1)
    for warnings in clips[rank::2]:
        done += convert(warnings) == 0
    dist.all_reduce(done)
    return done


print(epoch([3, 5, 40, 20_000]))
dist.destroy_process_group()
