"""Figures of running engines and finished models."""
