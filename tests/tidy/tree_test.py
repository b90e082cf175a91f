#!/usr/bin/env python3
"""The whole repository passes the tidy rules and keeps the limits of prose. Reads the real tree, not the copies that Bazel makes."""

import os
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
import prose  # noqa: E402  (found in the same folder)
import tidy  # noqa: E402

if not os.path.exists(os.path.join(ROOT, "WORKSPACE")):
    sys.exit(f"{ROOT} is not the repository")
# Both print their findings.
sys.exit(max([tidy.main([ROOT]), prose.check_tree(ROOT)]))
