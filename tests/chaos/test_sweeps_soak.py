"""Three sweeps for 200 rounds unless IMPEL_ROUNDS says otherwise, on each store."""
import os

os.environ.setdefault("IMPEL_ROUNDS", "200")

import test_sweeps  # noqa: E402,F401  pylint: disable=wrong-import-position,unused-import
