"""Parts of the Serve page."""
