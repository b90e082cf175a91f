"""Checks a step history against one change of group adamw's rate: its ratio to group muon's rate before, the new one
after."""

import json
import sys


def main():
    with open(sys.argv[1]) as file:
        answer = json.load(file)
    with open(sys.argv[2]) as file:
        entries = json.load(file)["steps"]
    problems = []
    if answer["group"]["lr"] != 0.25 or answer["group"]["adamw"]["beta1"] != 0.8:
        problems.append(f"answer: {answer}")
    revision = answer["config_revision"]
    changes = [entry for entry in entries if entry["kind"] == "group_change"]
    if [entry["position"] for entry in changes] != [revision]:
        problems.append(f"changes at {[entry['position'] for entry in changes]}, answered {revision}")
    settings = [{"group": "adamw", "field": "adamw.beta1", "value": "0.8"}, {"group": "adamw", "field": "lr", "value": "0.25"}]
    if changes and changes[0]["settings"] != settings:
        problems.append(f"settings: {changes[0]['settings']}")
    # The trainer's schedule multiplies all rates of a step by the same factor.
    trained = [entry for entry in entries if entry["kind"] == "train" and entry["rates"]["muon"] > 0]
    before = {round(e["rates"]["adamw"] / e["rates"]["muon"], 9) for e in trained if e["position"] < revision}
    after = {round(e["rates"]["adamw"] / e["rates"]["muon"], 9) for e in trained if e["position"] > revision}
    if len(before) != 1 or len(after) != 1 or before == after:
        problems.append(f"rate of adamw over that of muon: {before} before, {after} after")
    if [entry["position"] for entry in entries] != list(range(entries[0]["position"], entries[-1]["position"] + 1)):
        problems.append("positions with gaps")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


sys.exit(main())
