"""`python -m ui` opens the window."""

import sys

from ui.app import main

if __name__ == "__main__":
    sys.exit(main())
