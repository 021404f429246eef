"""Lathe's domain: models, recipes, jobs, engines and chats, without a window."""

__version__ = "0.1.0"
