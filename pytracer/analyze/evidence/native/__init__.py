"""The native stack: which function failed, and how it came there."""
