"""Imported before vLLM by a child that loads many tiny models: garbage is collected when the child says so.

vLLM collects nine times for each engine, every time through all that torch and vLLM have imported; that is most of
what the load of a tiny model takes.
"""

import gc

collect = gc.collect
gc.collect = lambda generation=2: 0
