"""Lathe's window: pages, plots and widgets over the domain in `workbench`."""
