"""The parts of the Quantize page."""
