"""Runs a test file of another folder with a redis-server instead of the embedded store:
on_redis.py FILE [FILTER]"""
import os
import pathlib
import runpy
import sys

FILE = pathlib.Path(sys.argv[1]).resolve()
os.environ["IMPEL_TEST_STORE"] = "redis"
os.environ.setdefault("IMPEL_ROUNDS", "5")
sys.path.insert(0, str(FILE.parent))
sys.argv[:2] = [str(FILE)]
runpy.run_path(str(FILE), run_name="__main__")
