"""The programs of test_beside.py for 40 kills each, unless IMPEL_ROUNDS says otherwise."""
import os

os.environ.setdefault("IMPEL_ROUNDS", "40")

import test_beside  # noqa: E402,F401  pylint: disable=wrong-import-position,unused-import
