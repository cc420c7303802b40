"""``python -m router`` is the command ``pointsman``."""

import sys

from router.cli import main

sys.exit(main())
