"""Devices: CUDA graphs, streams, errors, core dumps and messages of the driver."""
