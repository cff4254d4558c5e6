"""The black box format: the only thing that the recording half and the reading half share."""
