"""Ends that came from outside or were asked for: signals, the OOM killer, exit()."""
