"""What models are there, what they are made of, and what fits on this machine."""
