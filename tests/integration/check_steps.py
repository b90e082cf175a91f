"""check_steps.py FILE exempt|clip: checks a step history of `kaonctl -o json steps`: clipping of AdamW, exemption of
Muon or its clipping to the floor of 0.25, and the skipped step."""

import json
import sys


def main():
    with open(sys.argv[1]) as file:
        steps = json.load(file)["steps"]
    problems = []
    for step in steps:
        if step["step"] == 0:
            continue
        if step["step"] == 3:
            if step["outcome"] != "skip" or "non-finite" not in step["reason"] or "input.weight from rank 0" not in step["reason"]:
                problems.append(f"step 3: {step}")
            continue
        groups = {group["group"]: group for group in step["norms"]}
        is_exempt = sys.argv[2] == "exempt"
        if groups["muon"]["exempt"] != is_exempt or groups["muon"]["clip_factor"] != (1 if is_exempt else 0.25):
            problems.append(f"muon, which is to be {sys.argv[2]}: {step}")
        if not 0 < groups["adamw"]["clip_factor"] < 1:
            problems.append(f"adamw is not clipped: {step}")
    if [step["step"] for step in steps if step["step"] > 0] != list(range(1, 9)):
        problems.append(f"steps: {[step['step'] for step in steps]}")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


sys.exit(main())
