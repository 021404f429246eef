"""Turns 16-bit weights into 4 bits, one block at a time. The only package that imports torch for weights."""
