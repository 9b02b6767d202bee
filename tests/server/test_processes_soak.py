"""The processes on one file for as long as it takes to believe them: a million entries."""
import os

os.environ.setdefault("IMPEL_ADDS", "1000000")

import test_processes  # noqa: E402,F401  pylint: disable=wrong-import-position,unused-import
