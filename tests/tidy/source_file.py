"""One C++ file as the tidy rules see it: its lines, the same without comments and literals, and its functions."""

import re

_SKIP = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'',
    re.DOTALL,
)
_TYPE = re.compile(r"\b(?:class|struct|union|enum)\b")


def _blank(match):
    """The match with everything but its line breaks replaced; literals keep their quotes."""
    text = match.group(0)
    blank = re.sub(r"[^\n]", " ", text)
    return blank if text.startswith("/") else text[0] + blank[1:-1] + text[-1]


class SourceFile:
    """`path` is relative to the repository's root, with forward slashes."""

    def __init__(self, path, text):
        self.path = path
        self.text = text
        self.lines = text.split("\n")
        if self.lines and not self.lines[-1]:
            self.lines.pop()
        self.code = _SKIP.sub(_blank, text)
        # Preprocessor lines would unbalance braces and look like code.
        self.plain_code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group(0)),
                                 self.code, flags=re.MULTILINE)

    def includes(self):
        """(line number, included path, is it in quotes)."""
        pattern = re.compile(r'^[ \t]*#[ \t]*include[ \t]+(["<])([^">]+)[">]', re.MULTILINE)
        for match in pattern.finditer(self.text):
            yield self.line_of(match.start()), match.group(2), match.group(1) == '"'

    def line_of(self, offset):
        return self.text.count("\n", 0, offset) + 1

    def find(self, pattern):
        """(line number, match) for every match in the code."""
        for match in re.finditer(pattern, self.code):
            yield self.line_of(match.start()), match

    def functions(self):
        """(first line, last line, head) of every function with a body, lambdas and local classes not counted apart."""
        stack = []
        head_start = 0
        code = self.plain_code
        for match in re.finditer(r"[{};]", code):
            offset, char = match.start(), match.group(0)
            if char == ";":
                head_start = offset + 1
            elif char == "{":
                stack.append(self._open(stack, code, head_start, offset))
                head_start = offset + 1
            elif stack:
                kind, start = stack.pop()
                head_start = offset + 1
                if kind != "function":
                    continue
                if re.match(r"\s*[,{]", code[offset + 1:offset + 200]):
                    # A braced member initializer: the function's body is still to come.
                    head_start = start
                    continue
                first = start + len(code[start:]) - len(code[start:].lstrip())
                yield self.line_of(first), self.line_of(offset), code[start:offset].split("{")[0].strip()

    @staticmethod
    def _open(stack, code, head_start, offset):
        head = code[head_start:offset].strip()
        if any(kind in ("function", "block") for kind, _ in stack):
            return "block", head_start
        if re.search(r"\bnamespace\b|\bextern\b", head) and "(" not in head:
            return "namespace", head_start
        if "(" in head and not re.search(r"=\s*$", head):
            return "function", head_start
        if _TYPE.search(head):
            return "type", head_start
        return "other", head_start
