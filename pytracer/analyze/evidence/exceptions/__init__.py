"""Python exceptions beyond their own line: other processes', handled ones, and where names came from."""
