"""The damage tests for as long as it takes to believe them: 2,000 rounds each unless IMPEL_ROUNDS says otherwise."""
import os

os.environ.setdefault("IMPEL_ROUNDS", "2000")

import test_damage  # noqa: E402,F401  pylint: disable=wrong-import-position,unused-import
