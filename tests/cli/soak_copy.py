#!/usr/bin/python3
"""test_copy.py with a kill at each moment, not at every sixth."""
import os

os.environ.setdefault("IMPEL_TEST_STRIDE", "1")

import test_copy  # pylint: disable=unused-import,wrong-import-position
