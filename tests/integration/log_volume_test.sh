#!/bin/bash
# A healthy cluster logs less than 1 MB a day in all, if a place in the code has its lines every ten minutes at most. No place in the code has a line for each step, scrape or event of
# the status page, which are all at work here.
source tests/integration/real_cluster.sh

STEPS=400
# A step lasts longer, so that scrapes and page are at work for some of them.
SMALL=(--hidden 256 --embedding 32 --batch-size 96 --report-every 100)
export KAON_METRICS=1 KAON_LOG_FORMAT=json
start 2 2
python3 tests/integration/watch_cluster.py "$DIR" 0.05 "$TEST_TMPDIR/counts" &
watcher=$!
watched() { read -r scrapes events <"$TEST_TMPDIR/counts" && ((scrapes >= $1 && events >= $2)); } 2>/dev/null
wait_for 60 watched 3 1
train "$TEST_TMPDIR/train" --workers 2 --steps $STEPS || { cat "$TEST_TMPDIR/train"; exit 1; }
# Scrapes go on for longer than a place may have lines for them.
wait_for 60 watched 100 2
ended=$(date -u +%Y-%m-%dT%H:%M:%S.%NZ)
kill "$watcher" && wait "$watcher" || true
echo "$scrapes scrapes, $events events of the page"
stop
python3 - "$STEPS" "$ended" "$DIR"/*.log <<'PYTHON' || fail "the logs are too large"
import collections, json, os, sys

steps, ended = int(sys.argv[1]), sys.argv[2]
PERIODS_OF_A_DAY = 24 * 6  # lines that come again come at most every ten minutes
day = problems = 0
for path in sys.argv[3:]:
    lines = open(path).read().splitlines()
    places, again = collections.Counter(), {}
    for line in lines:
        # Both outputs of a server are in the file. The link is no log.
        if line.startswith("status page: "):
            continue
        one = json.loads(line)
        places[one["source"]] += 1
        # A busy machine may lead to warnings.
        if one["level"] in ("error", "fatal"):
            problems += 1
            print(f"{os.path.basename(path)}: a healthy cluster says: {line}")
        # Lines from the first step to the end of training may come again.
        if one.get("step", 0) >= 1 and one["ts"] < ended:
            again[one["source"]] = max(again.get(one["source"], 0), len(line) + 1)
    size = os.path.getsize(path)
    a_day = size + PERIODS_OF_A_DAY * sum(again.values())
    print(f"{os.path.basename(path)}: {len(lines)} lines, {size} bytes, at most {a_day} in a day; again: {sorted(again)}")
    day += a_day
    for place, number in places.items():
        if number > 10:
            problems += 1
            print(f"{os.path.basename(path)}: {number} lines of {place} in {steps} steps")
    if not again:
        problems += 1
        print(f"{path} says nothing about steps")
print(f"the cluster: at most {day} bytes in a day")
sys.exit(bool(problems or day >= 1_000_000))
PYTHON
finish
