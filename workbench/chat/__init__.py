"""Chats: turns with a reply per engine, kept over restarts and cut into parts to show."""
