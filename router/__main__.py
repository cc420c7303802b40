"""``python -m router`` is the command ``switchyard``."""

import sys

from router.cli import main

sys.exit(main())
