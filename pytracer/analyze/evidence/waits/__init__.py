"""Processes that stand still: what they wait for, and what keeps its end from being reached."""
