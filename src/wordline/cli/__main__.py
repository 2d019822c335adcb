"""``python -m wordline.cli``, where the console script is not installed."""

import sys

from wordline.cli.app import main

sys.exit(main())
