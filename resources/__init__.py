"""Icons, style, translations, and texts for calibration and evaluation."""
