#!/usr/bin/python3
"""The comparison of test_model.py for an hour, each time with other commands."""
import os
import time

os.environ.setdefault("IMPEL_TEST_SEED", str(int(time.time())))
os.environ.setdefault("IMPEL_TEST_SECONDS", "1800")

import test_model  # pylint: disable=unused-import,wrong-import-position
