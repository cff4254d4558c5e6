"""Limits of a process: which one was reached, who set it, and what to do."""
