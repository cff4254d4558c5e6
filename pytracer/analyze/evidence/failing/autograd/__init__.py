"""What backward(), its graph and the optimizer's step refuse."""
