"""The running operator of torch: its tensors, and operands that do not fit together."""
