#!/usr/bin/env python3
"""The whole repository passes the tidy rules. Reads the real tree, not the copies that Bazel makes."""

import os
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
import tidy  # noqa: E402  (found beside this file)

if not os.path.exists(os.path.join(ROOT, "WORKSPACE")):
    sys.exit(f"{ROOT} is not the repository")
sys.exit(tidy.main([ROOT]))
