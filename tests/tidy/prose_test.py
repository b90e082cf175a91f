#!/usr/bin/env python3
"""Tests of the prose rules: sentences that pass, one for each pattern that must be found, and limits."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import prose  # noqa: E402  (found in the same folder)

GOOD = (
    "Returns the digest of the newest weights; 0 before the first load.",
    "For each parameter the shard keeps one sum.",
    "If a lane cannot open, the push continues without it.",
    "To train your own model, link the client library.",
    "What is promised?",
    "Norm clipping leaves scale-invariant groups alone ([C7]).",
    "Reads `whoever_beside`, e.g. 1 .. 4 of them.",
)
BAD = (
    ("fragment", "Of the newest weights, 0 before there are any."),
    ("fragment", "Of a job that has stopped."),
    ("fragment", "If the lane is open."),
    ("clause", "What would wait for the library's own thread ends the process."),
    ("clause", "Whether Get() returns at once."),
    ("long", "A " + "word " * prose.MAX_WORDS + "more."),
    ("bare-id", "[C7]"),
    ("bare-id", "Refused by P11."),
    ("whoever", "The buffer belongs to whoever calls."),
    ("beside", "The old weights lie beside them."),
    ("beside", "They run side by side."),
    ("field-word", "The plan is lost and comes again."),
)


class ProseTest(unittest.TestCase):
    def test_sentences(self):
        for sentence in GOOD:
            self.assertEqual(prose.check_sentence(sentence), [], sentence)
        for pattern, sentence in BAD:
            self.assertEqual(prose.check_sentence(sentence), [pattern], sentence)

    def test_comments(self):
        source = ('// Returns one. Of the\n// newest\n// weights.\n//   Of code\n\nint a = 1;  // Of a tail\n'
                  '            // that goes on.\nconst char* url = "http://Of it";  // NOLINT\n'
                  '// - Writes it.\n//   Of an item.\nint A();  // Reads.\n// Of a new comment.\n')
        self.assertEqual(list(prose.check_text("kernels/a.h", source)), [
            (1, "fragment", "Of the newest weights."), (6, "fragment", "Of a tail that goes on."),
            (10, "fragment", "Of an item."), (12, "fragment", "Of a new comment.")])

    def test_pages(self):
        source = ("# Of headings\n\nOf\nlines.\n\n```\nOf code.\n```\n- Of items.\n    - Of inner ones.\n\n"
                  "    Of pictures\n\n| Of tables | beside |\nOf the rest.\n\n- **[C7] Exemption.**\n")
        self.assertEqual([(line, pattern) for line, pattern, _ in prose.check_text("docs/a.md", source)],
                         [(3, "fragment"), (9, "fragment"), (10, "fragment"), (14, "beside"), (15, "fragment")])

    def test_limits(self):
        counts = prose.count_findings([("client/kaon/a.h", "// Whoever asks.\n"), ("LICENSE.md", "Of it.\n")])
        self.assertEqual(counts["client/kaon"]["whoever"], 1)
        self.assertEqual(counts["pages"]["fragment"], 1)
        above, below = prose.check_limits(counts, {"client/kaon": {"whoever": 3}})
        self.assertEqual(above, ["pages: fragment: 1 findings, at most 0: run tests/tidy/prose.py pages"])
        self.assertEqual(below, ["client/kaon: whoever: lower the limit from 3 to 1"])


if __name__ == "__main__":
    unittest.main()
