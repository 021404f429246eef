"""Parts of the Chat page."""
