"""``python -m router`` is the command ``pointsman``."""

import sys

from router.cli.main import main

sys.exit(main())
