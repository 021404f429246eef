"""Turns 16-bit weights into 4 bits, one block at a time. The only package that imports torch for weights."""

import os

# Rounding is many small steps; threads that spin between them cost five times the work beside another program.
# OpenMP reads this once, when torch loads it.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
