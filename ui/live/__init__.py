"""The parts of the Live panel."""
