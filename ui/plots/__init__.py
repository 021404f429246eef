"""Plots of weights and of live figures."""
