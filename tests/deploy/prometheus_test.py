#!/usr/bin/python3
"""Rules and dashboard in deploy/prometheus name only metrics and labels that exist, and every alert has a test.

With --promtool also what promtool says of them (package prometheus; suite monitor of tests/nightly.sh).
"""

import json
import re
import subprocess
import sys

import yaml

FOLDER = "deploy/prometheus/"
CONFIGURATIONS = (
    FOLDER + "prometheus.yml", FOLDER + "compose.yml", "deploy/kubernetes/overlays/metrics/prometheus.yml",
)  # fmt: skip
# What Prometheus adds to every series.
TARGET_LABELS = {"job", "instance"}
OF_PROMETHEUS = {"up": set()}
FUNCTIONS = {
    "sum", "by", "rate", "increase", "histogram_quantile", "predict_linear", "avg_over_time", "time", "on", "group_left",
    "and", "or", "unless", "le",
}  # fmt: skip
problems = []


def metrics():
    """The labels of every series, by name."""
    known = dict(OF_PROMETHEUS)
    row = re.compile(r"^\| `(\w+)` \| (\w+) \| \w+ \| ([^|]*) \|")
    for line in open("docs/metrics.md"):
        if match := row.match(line):
            name, kind, labels = match.groups()
            labels = set(re.findall(r"\w+", labels))
            known[name] = labels
            if kind == "histogram":
                known[name + "_bucket"] = labels | {"le"}
                known[name + "_sum"] = known[name + "_count"] = labels
    assert len(known) > 40, known
    return known


def check(where, expression, known):
    text = re.sub(r'"[^"]*"', '""', expression)
    names = set(re.findall(r"(?<![\w:$])[a-z_][\w:]*", re.sub(r"\[\d+[smhd]\]|\b\d[\w.]*", " ", text)))
    series = {name for name in names if name in known}
    labels = set.union(set(TARGET_LABELS), *(known[name] for name in series))
    if not series:
        problems.append(f"{where}: no metric in {expression}")
    for name in sorted(names - series - FUNCTIONS - labels):
        problems.append(f"{where}: {name} is neither a metric nor a label of one")
    # A matcher's label belongs to its own metric.
    for name, matchers in re.findall(r"([\w:]+)\{([^}]*)\}", text):
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers):
            if label not in known.get(name, set()) | TARGET_LABELS:
                problems.append(f"{where}: {name} has no label {label}")
    return labels


known = metrics()
rules = [rule for group in yaml.safe_load(open(FOLDER + "rules.yml"))["groups"] for rule in group["rules"]]
for rule in rules:
    if "record" in rule:
        # Its own labels are those of the metrics in it, at most.
        known[rule["record"]] = check(rule["record"], rule["expr"], known)
for rule in rules:
    if "alert" not in rule:
        continue
    labels = check(rule["alert"], rule["expr"], known)
    if set(rule["annotations"]) != {"summary", "action"} or rule["labels"]["severity"] not in ("critical", "warning"):
        problems.append(f"{rule['alert']} lacks a severity, a summary or an action")
    for label in re.findall(r"\$labels\.(\w+)", str(rule["annotations"])):
        if label not in labels:
            problems.append(f"{rule['alert']} shows label {label}, which it has not")
tests = yaml.safe_load(open(FOLDER + "rules_test.yml"))["tests"]
alerts = {rule["alert"] for rule in rules if "alert" in rule}
fired = {one["alertname"] for test in tests for one in test["alert_rule_test"] if one["exp_alerts"]}
quiet = {one["alertname"] for test in tests for one in test["alert_rule_test"] if not one["exp_alerts"]}
for name in sorted(alerts - fired):
    problems.append(f"no test shows {name} firing")
for name in sorted(alerts - quiet):
    problems.append(f"no test shows that {name} does not fire on a cluster that trains")
for test in tests:
    for one in test["input_series"]:
        check(test["name"], one["series"], known)
panels = json.load(open(FOLDER + "dashboard.json"))["panels"]
for panel in panels:
    for target in panel["targets"]:
        labels = check(f"panel {panel['title']}", target["expr"], known)
        for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
            if label not in labels:
                problems.append(f"panel {panel['title']} shows label {label}, which it has not")
for name in CONFIGURATIONS:
    targets = yaml.safe_load(open(name))["scrape_configs"]
    if {one["job_name"] for one in targets} != {"kaon-coordinator", "kaon-shard"}:
        problems.append(f"{name}: rules and dashboard rely on the names of the two scrape jobs")
if "--promtool" in sys.argv:
    for command in (
        *(["check", "config", "--syntax-only", name] for name in CONFIGURATIONS),
        ["test", "rules", FOLDER + "rules_test.yml"],
    ):
        ran = subprocess.run(["promtool", *command], capture_output=True, text=True)
        print(ran.stdout, end="")
        if ran.returncode != 0:
            problems.append(f"promtool {' '.join(command)}: {ran.stderr}")
print(*problems, sep="\n")
print(f"{len(rules)} rules, {len(tests)} tests of them, {len(panels)} panels, {len(problems)} problems")
sys.exit(bool(problems))
