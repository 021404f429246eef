"""Serving: a profile becomes a command, a child, figures and answers."""
