"""What the benchmarks share; `victim.py` is a program of its own."""
