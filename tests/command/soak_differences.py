#!/usr/bin/python3
"""The comparison of test_differences.py for some minutes, each time with other commands."""
import os
import time

os.environ.setdefault("IMPEL_TEST_SEED", str(int(time.time())))
os.environ.setdefault("IMPEL_TEST_ROUNDS", "1200")

import test_differences  # pylint: disable=unused-import,wrong-import-position
