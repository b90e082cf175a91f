#!/usr/bin/env python3
"""Records how many calls the servers of a cluster have had, by their own counts: a line of JSON for each look that
all of them answer at once.

  count_calls.py KAONCTL DIR FILE         once a second, until it is killed
  count_calls.py KAONCTL DIR FILE --once  until there is one
"""

import json
import subprocess
import sys
import time

PERIOD_SECONDS = 1.0
# A longer look belongs to no moment.
LONGEST_LOOK_SECONDS = 0.8
PATIENCE_SECONDS = 30


def look(kaonctl, folder):
    """Returns the content of a line, or None."""
    start = time.monotonic()
    done = subprocess.run([kaonctl, "--dir", folder, "-o", "json", "status"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          check=False)
    at = time.monotonic()
    if done.returncode != 0 or at - start > LONGEST_LOOK_SECONDS:
        return None
    status = json.loads(done.stdout)
    events = [status["events"]] + [shard.get("events") for shard in status["shards"]]
    if None in events:
        return None
    return {"at": (start + at) / 2, "step": status["applied_step"], "calls": sum(one.get("call", 0) for one in events)}


def main(arguments):
    kaonctl, folder, path = arguments[:3]
    once = arguments[3:] == ["--once"]
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        line = look(kaonctl, folder)
        if line is not None:
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        if once and line is not None:
            return 0
        if once and time.monotonic() > deadline:
            print(f"no answer of all servers within {PATIENCE_SECONDS} s")
            return 1
        time.sleep(PERIOD_SECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
