"""Raises an uncaught exception: uncaught_exception.py [RUN]. Traced when a run directory is given."""

import sys


def load(shards):
    return shards["train"][7]


def main():
    if sys.argv[1:]:
        import pytracer

        pytracer.enable(sys.argv[1])
    try:
        load({"train": []})
    except IndexError as error:
        raise RuntimeError("no shard 7") from error


main()
