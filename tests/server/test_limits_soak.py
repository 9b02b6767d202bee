"""The limits with 10,000 connections, where the system allows so many open files."""
import os

os.environ.setdefault("IMPEL_CONNECTIONS", "10000")

import test_limits  # noqa: E402,F401  pylint: disable=wrong-import-position,unused-import
