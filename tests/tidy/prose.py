#!/usr/bin/env python3
"""Counts the sentences that break our rules of plain English (CONTRIBUTING.md), in comments and pages.

Usage: prose.py [--summary] [PATH...]   lists the findings of files and folders, then a table by area
       prose.py --update                lowers the limits to the present counts of the work tree

Without PATH it reads the whole work tree that it is called in. Reads `//` comments of C++ and .proto files and the text
of .md files. Code blocks, headings and quotes of pages are left out; a table is only searched for words. tree_test.py
fails if an area is above its limit in prose_limits.json.
"""

import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

LIMITS = "prose_limits.json"
MAX_WORDS = 25
MIN_WORDS_WITH_ID = 5
PATTERNS = ("fragment", "clause", "long", "bare-id", "whoever", "beside", "field-word")
COMMENTED = (".h", ".cc", ".cu", ".cuh", ".proto")
# The longest prefix decides; any other file belongs to the first folder of its path, or to "pages".
AREAS = ("client/kaon", "server/shard", "server/coordinator", "docs/adr", "docs/design", "README.md")
# Diaries: what was seen on a day is not rewritten.
LEFT_OUT = ("docs/log/",)

_COMMENT = re.compile(
    r'(?P<comment>//[^\n]*)|/\*.*?\*/|R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.DOTALL)
_DIRECTIVE = re.compile(r"^(NOLINT|clang-format|namespace\b|KAON_\w+_H_$|IWYU|extern \"C\")")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+")
_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\bvs)(?<!\bcf)(?<!\betc)(?<!\.)[.!?](?!\.)[\"')\]*_]*(?=\s|$)")
_ID = re.compile(r"\[?\b[ACDGKLMNPQSTW]\d{1,2}[a-z]?\b\]?")

_CLAUSE = re.compile(r"(What|Whatever|Who|Whom|Whose|Whoever|Which|Whichever|Whether|That|How)\b(?! to\b)")
_PREPOSITION = re.compile(r"(Of|With|Without|For|In|By|At|On|From|To|Under|Over|As|Into|Per|Within|Through|Among"
                          r"|Between|Against|Beyond|Below|Above|After|Before|During|Since|Until|Up to|Out of)\b")
_SUBORDINATE = re.compile(r"(If|When|Unless|While|Because|Where|Once|So that|Although|Though|Lest|Until)\b")
# Up to the next comma, these words begin a clause that cannot be the main one.
_INNER_CLAUSE = re.compile(r"\b(that|which|who|whom|whose|what|whoever|where|when|while|if|as|than|until|unless|because"
                           r"|how|whether|since|so|before|after|once)\b[^,;:]*")
_AUXILIARY = ("is are was were am be has have had does do did can cannot could may might must will would shall should "
              "isn't don't doesn't won't can't")
# Verbs that a main clause of ours has; words that are mostly nouns here, such as step and count, are left out.
_VERBS = ("abort accept add admit agree allocate allow answer append apply ask assume await become begin belong bind "
          "block bring build call cancel carry change check choose clear close collect come compare compute consist "
          "contain continue copy cost create decide declare decode define delete depend describe destroy detect differ "
          "discard divide drain drop drive encode end enter equal erase evaluate exceed exist exit expect fail fall "
          "fill find finish fit fold follow free freeze get give go grow guard happen hash hear help hold ignore include "
          "increase install join keep kill know last lead learn leave lie list listen live load lock lose make map "
          "match mean measure merge move multiply name need notify occupy open overwrite own pass pay persist pick "
          "place point prepare print produce promise propose prove pull push put raise reach read receive refer refuse "
          "register reject release remain remove repeat replace replay report represent require reserve resolve respond "
          "restart restore resume retry return reuse run save say scale see seem select send serve set share show shut "
          "sign skip sleep speak spend split stand start stay stop store succeed sum swap sync take tell throw touch "
          "train treat try turn unlock update use verify wait wake walk want win work wrap write yield").split()


def _forms(verb):
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb, verb[:-1] + "ies"
    return verb, verb + ("es" if verb.endswith(("s", "sh", "ch", "x", "go")) else "s")


_FINITE = re.compile(r"\b(%s)\b" % "|".join(_AUXILIARY.split() + [form for verb in _VERBS for form in _forms(verb)]))
_WORDS = (
    ("whoever", re.compile(r"\bwhoever\b", re.IGNORECASE)),
    ("beside", re.compile(r"\bbeside\b|\bside by side\b", re.IGNORECASE)),
    ("field-word", re.compile(
        r"\b(com(e|es|ing)|came) again\b|\b(give|gives|given|gave|giving) back\b|\b(give|gives|gave) (it|them) back\b"
        r"|\b(is|are|was|were|be|been|being) (lent|done with(out)?)\b|\bdone without\b|\blends?\b|\blent\b|\bin vain\b",
        re.IGNORECASE)),
)


class Text:
    """Lines of one paragraph, joined; knows the line of each character."""

    def __init__(self, is_item=False, is_table=False):
        self.text = ""
        self.starts = []
        self.is_item = is_item
        self.is_table = is_table

    def add(self, line, text):
        self.starts.append((len(self.text), line))
        self.text += text.strip() + " "

    def line_of(self, offset):
        return max(line for start, line in self.starts if start <= offset) if self.starts else 0

    def sentences(self):
        """(line, sentence) in order. A quote of code is one word."""
        text = re.sub(r"`[^`]*`", lambda m: "`" + "_" * (len(m.group(0)) - 2) + "`", self.text)
        start = 0
        for end in [m.end() for m in _END.finditer(text)] + [len(text)]:
            lead = len(text[start:end]) - len(text[start:end].lstrip())
            sentence, shown = text[start:end].strip(), self.text[start:end].strip()
            if re.search(r"[A-Za-z0-9_]", sentence):
                yield self.line_of(start + lead), sentence, shown
            start = end


def comment_paragraphs(source):
    """The `//` comments; one that ends a line of code continues in the lines below that begin in its column."""
    paragraph, last = Text(), (0, 0)
    for match in _COMMENT.finditer(source):
        if not match.group("comment"):
            continue
        line = source.count("\n", 0, match.start()) + 1
        line_start = source.rfind("\n", 0, match.start()) + 1
        column = match.start() - line_start
        text = match.group("comment").lstrip("/")
        is_item = bool(_ITEM.match(text))
        # Indented text is a picture or code, unless it continues an item of a list.
        is_code = text.startswith("   ") and not is_item and not paragraph.is_item
        continues = last == (line - 1, column) and not source[line_start:match.start()].strip()
        if not continues or is_item or is_code or not text.strip():
            yield paragraph
            paragraph = Text(is_item)
        if not is_code and not _DIRECTIVE.match(text.strip()):
            paragraph.add(line, text)
        last = line, column
    yield paragraph


def page_paragraphs(source):
    paragraph, in_code = Text(), False
    for line, text in enumerate(source.split("\n"), 1):
        is_fence = bool(re.match(r"\s*(```|~~~)", text))
        in_code ^= is_fence
        is_item = bool(_ITEM.match(text))
        is_table = text.lstrip().startswith("|")
        is_indented = text.startswith("    ") and not is_item and not paragraph.text
        is_skipped = in_code or is_fence or is_indented or bool(re.match(r"\s*(#|>|<|!\[|$)", text))
        if is_skipped or is_item or is_table or paragraph.is_table:
            yield paragraph
            paragraph = Text(is_item, is_table)
        if not is_skipped:
            # The target of a link is no word.
            paragraph.add(line, re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text))
    yield paragraph


def count_words(sentence):
    return len([word for word in sentence.split() if re.search(r"[A-Za-z0-9_]", word)])


def has_main_clause(sentence):
    """False if nothing is left to say of a sentence that begins with a preposition or a conjunction."""
    if _SUBORDINATE.match(sentence) and not _PREPOSITION.match(sentence):
        rest = re.split(r"[,:]\s", sentence, 1)
        return len(rest) > 1 or " then " in sentence
    head, *rest = re.split(r":\s", sentence, 1)
    if rest and count_words(rest[0]) > 2:
        return True
    return bool(_FINITE.search(_INNER_CLAUSE.sub("", sentence)))


def check_sentence(sentence, is_page=False, is_table=False):
    """Names of the patterns that it has. In a page an id that begins a sentence is being defined."""
    found = [name for name, pattern in _WORDS for _ in pattern.findall(sentence)]
    if is_table:
        return found
    plain = re.sub(r"^[*_\"'(]+", "", _ITEM.sub("", sentence))
    num_words = count_words(plain)
    if not plain.rstrip("*_\"')]").endswith("?"):
        if _CLAUSE.match(plain) and num_words > 2:
            found.append("clause")
        elif (_PREPOSITION.match(plain) or _SUBORDINATE.match(plain)) and num_words > 1 and not has_main_clause(plain):
            found.append("fragment")
    if num_words > MAX_WORDS:
        found.append("long")
    ids = _ID.findall(plain)
    if ids and not (is_page and _ID.match(plain)) and count_words(_ID.sub("", plain)) < MIN_WORDS_WITH_ID:
        found.append("bare-id")
    return found


def check_text(path, source):
    """(line, pattern, sentence) of every finding of a file."""
    is_page = path.endswith(".md")
    paragraphs = page_paragraphs(source) if is_page else comment_paragraphs(source)
    for paragraph in paragraphs:
        for line, sentence, shown in paragraph.sentences():
            for pattern in check_sentence(sentence, is_page, paragraph.is_table):
                yield line, pattern, shown


def area_of(path):
    for area in AREAS:
        if path == area or path.startswith(area + "/"):
            return area
    return path.split("/")[0] if "/" in path else "pages"


def read_files(root, below=""):
    """(path from the root, text) of every comment and page; hidden folders and build outputs are left out."""
    start = os.path.join(root, below)
    names = [(os.path.dirname(start), (), [os.path.basename(start)])] if os.path.isfile(start) else os.walk(start)
    for folder, folders, files in names:
        if folders:
            folders[:] = sorted(f for f in folders if not f.startswith((".", "bazel-", "__")))
        for name in sorted(files):
            full = os.path.join(folder, name)
            path = os.path.relpath(full, root).replace(os.sep, "/")
            if name.endswith(COMMENTED + (".md",)) and not path.startswith(LEFT_OUT) and not os.path.islink(full):
                with open(full, encoding="utf-8") as stream:
                    yield path, stream.read()


def count_findings(files, show=False):
    """Area -> pattern -> count."""
    counts = {}
    for path, text in files:
        area = counts.setdefault(area_of(path), dict.fromkeys(PATTERNS, 0))
        for line, pattern, sentence in check_text(path, text):
            area[pattern] += 1
            if show:
                print(f"{path}:{line}: {pattern}: {sentence}")
    return counts


def print_table(counts):
    print("area".ljust(20) + "".join(name.rjust(11) for name in PATTERNS + ("sum",)))
    total = {name: sum(area[name] for area in counts.values()) for name in PATTERNS}
    for area, row in sorted(counts.items()) + [("sum", total)]:
        print(area.ljust(20) + "".join(str(n).rjust(11) for n in [*row.values(), sum(row.values())]))


def read_limits(root):
    with open(os.path.join(root, "tests/tidy", LIMITS), encoding="utf-8") as stream:
        return json.load(stream)


def check_limits(counts, limits):
    """(messages about counts above their limit, messages about limits that may fall)."""
    above, below = [], []
    for area, row in sorted(counts.items()):
        for pattern, count in row.items():
            limit = limits.get(area, {}).get(pattern, 0)
            if count > limit:
                above.append(f"{area}: {pattern}: {count} findings, at most {limit}: run tests/tidy/prose.py {area}")
            elif count < limit:
                below.append(f"{area}: {pattern}: lower the limit from {limit} to {count}")
    return above, below


def check_tree(root):
    above, below = check_limits(count_findings(read_files(root)), read_limits(root))
    for message in below + above:
        print(message)
    if below:
        print("tests/tidy/prose.py --update lowers these limits")
    return 1 if above else 0


def update_limits(root):
    counts = count_findings(read_files(root))
    old = read_limits(root) if os.path.exists(os.path.join(root, "tests/tidy", LIMITS)) else None
    lines = []
    for area, row in sorted(counts.items()):
        if old is not None:
            row = {name: min(count, old.get(area, {}).get(name, 0)) for name, count in row.items()}
        if any(row.values()):
            lines.append(f"  {json.dumps(area)}: " + json.dumps({name: n for name, n in row.items() if n}))
    # An area a line, so that branches which lower different ones merge.
    with open(os.path.join(root, "tests/tidy", LIMITS), "w", encoding="utf-8") as stream:
        stream.write("{\n" + ",\n".join(lines) + "\n}\n")


def find_root(path):
    folder = os.path.abspath(path)
    while not os.path.exists(os.path.join(folder, "WORKSPACE")):
        if folder == os.path.dirname(folder):
            sys.exit(f"{path} is in no work tree of Kaon")
        folder = os.path.dirname(folder)
    return folder


def main(arguments):
    if arguments == ["--update"]:
        update_limits(find_root("."))
        return 0
    show = arguments[:1] != ["--summary"]
    paths = arguments if show else arguments[1:]
    if any(path.startswith("-") for path in paths):
        print(__doc__, file=sys.stderr)
        return 2
    files = [file for path in paths or [find_root(".")]
             for file in read_files(find_root(path), os.path.relpath(os.path.abspath(path), find_root(path)))]
    print_table(count_findings(files, show))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
