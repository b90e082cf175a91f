"""P13, every call has a deadline: each grpc::ClientContext that the product makes is given one, or stands in
exemptions.WITHOUT_DEADLINE beside what ends its call instead."""

import os
import re

# One that is made, not a pointer or reference to one, and not a declaration of the name.
_CONTEXT = re.compile(r"(?<!class )\bClientContext\b(?!\s*[*&]|::)")
_TYPE = re.compile(r"\b(?:class|struct)\s+(?:\[\[\w+\]\]\s*)?([\w:]+)[^()]*$")
CORE = re.compile(r"^(proto|kernels|job|client|server)/.*\.(h|cc)$")


def innermost_block(code, offset):
    """(head, text) of the braces around the offset; nothing outside of all."""
    depth = 0
    begin = offset
    while begin > 0:
        begin -= 1
        depth += (code[begin] == "}") - (code[begin] == "{")
        if depth < 0:
            break
    else:
        return "", ""
    depth = 1
    end = begin + 1
    while end < len(code) and depth > 0:
        depth += (code[end] == "{") - (code[end] == "}")
        end += 1
    head = re.split(r"[{};]", code[:begin])[-1]
    return head, code[begin:end]


def name_of(code, match):
    """What the context is called, a member or a variable; None where it has no name."""
    behind = re.match(r"[\s>]*(\w+)\s*[;={(]", code[match.end():])
    if behind:
        return behind.group(1)
    made = re.search(r"(\w+)\s*[=({]\s*(?:std::|absl::)?(?:make_unique|make_shared)<\s*(?:grpc::)?$", code[:match.start()])
    return made.group(1) if made else None


def bodies_of(type_name, codes):
    """What is in the braces of members of the type that are defined outside of it."""
    for code in codes:
        for match in re.finditer(r"\b" + re.escape(type_name) + r"(?:<[\w, ]*>)?::~?\w+\([^;{}]*\{", code):
            yield innermost_block(code, match.end())[1]


def has_deadline(codes, block, type_name, name):
    """`codes`: of the file, and of the one that belongs to it."""
    sets = re.escape(name) + r"\s*(?:\.|->)\s*set_deadline\s*\("
    own = r"(?<![\w.>])" + sets
    if re.search(own, block):
        return True
    if type_name is None:
        return False
    return (any(re.search(own, body) for body in bodies_of(type_name, codes))
            or any(re.search(r"(?:\.|->)" + sets, code) for code in codes))


def check_deadlines(files, without_deadline):
    """(path, line, rule, what) of every context without one, and of every exemption that is not needed."""
    used = set()
    for path, file in files.items():
        if not CORE.match(path):
            continue
        stem, suffix = os.path.splitext(path)
        other = files.get(stem + {".h": ".cc", ".cc": ".h"}[suffix])
        codes = [file.plain_code] + ([other.plain_code] if other else [])
        for match in _CONTEXT.finditer(file.plain_code):
            if re.search(r"\busing\s+(?:grpc::)?$", file.plain_code[:match.start()]):
                continue
            head, block = innermost_block(file.plain_code, match.start())
            found = _TYPE.search(head)
            type_name = found.group(1).split("::")[-1] if found else None
            name = name_of(file.plain_code, match)
            if name is not None and has_deadline(codes, block, type_name, name):
                continue
            owner = (path, type_name or name)
            if owner in without_deadline:
                used.add(owner)
                continue
            yield (path, file.line_of(match.start()), "deadline",
                   f"the calls of {owner[1]} have none: set_deadline, or say in exemptions.py what ends them")
    for path, owner in without_deadline:
        if (path, owner) not in used:
            yield path, 1, "exemption", f"that {owner} has no deadline is not so"
