"""The crash tests for as long as it takes to believe them: 500 rounds unless IMPEL_ROUNDS says otherwise."""
import os

os.environ.setdefault("IMPEL_ROUNDS", "500")

import test_crash  # noqa: E402,F401  pylint: disable=wrong-import-position,unused-import
