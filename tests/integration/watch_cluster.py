#!/usr/bin/python3
"""Watches a cluster until it is ended: scrapes every server's metrics and keeps the status page open.

watch_cluster.py DIR SECONDS COUNTS: DIR is a cluster's with KAON_METRICS=1. It scrapes each server every SECONDS. The file
COUNTS has the numbers of scrapes and of events of the page so far.
"""

import pathlib
import sys
import threading
import urllib.request

DIR, SECONDS, COUNTS = pathlib.Path(sys.argv[1]), float(sys.argv[2]), pathlib.Path(sys.argv[3])
TOKEN = (DIR / "metrics.token").read_text().strip()
counts = {"scrapes": 0, "events": 0}


def opened(name, path):
    request = urllib.request.Request(f"http://127.0.0.1:{(DIR / name).read_text().strip()}{path}")
    request.add_header("Authorization", f"Bearer {TOKEN}")
    return urllib.request.urlopen(request, timeout=60)


def read_page():
    opened("coordinator.metrics-port", "/").read()
    with opened("coordinator.metrics-port", "/events") as stream:
        for line in stream:
            counts["events"] += line.startswith(b"data:")


def write():
    COUNTS.with_suffix(".new").write_text(f"{counts['scrapes']} {counts['events']}\n")
    COUNTS.with_suffix(".new").rename(COUNTS)


def main():
    threading.Thread(target=read_page, daemon=True).start()
    pause = threading.Event()
    while True:
        for port in sorted(DIR.glob("*.metrics-port")):
            with opened(port.name, "/metrics") as answer:
                assert b"kaon_" in answer.read()
            counts["scrapes"] += 1
        write()
        pause.wait(SECONDS)


main()
