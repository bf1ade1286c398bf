"""``python -m skcurse`` is the command ``skcurse``."""

import sys

from skcurse.cli import main

if __name__ == "__main__":
    sys.exit(main())
