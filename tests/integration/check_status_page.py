#!/usr/bin/python3
"""Looks at the status page of a training cluster with Chromium, and keeps screenshots.

check_status_page.py LINK FOLDER STAGE: STAGE is `train` (a cluster that trains), `down` (one of its shards is down) or
`skip` (a step was skipped). LINK has the token.
"""

import sys
import urllib.parse

from browser import Browser

LINK, FOLDER, STAGE = sys.argv[1:]
problems = []
# Contrast of texts with what is behind them, names of controls, headings, headers of tables (WCAG 1.3.1, 1.4.3, 4.1.2).
RULES = """(() => {
  const found = [];
  const rgb = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (one) => {
    for (; one; one = one.parentElement) {
      const color = rgb(getComputedStyle(one).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const one = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || ['SCRIPT', 'STYLE', 'NOSCRIPT'].includes(one.tagName)) continue;
    const style = getComputedStyle(one);
    const a = light(rgb(one.closest('svg') ? style.fill : style.color)), b = light(behind(one));
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) found.push(`contrast ${contrast.toFixed(2)}: ${texts.currentNode.data.trim().slice(0, 40)}`);
  }
  for (const line of document.querySelectorAll('polyline, .legend line')) {
    const a = light(rgb(getComputedStyle(line).stroke)), b = light(behind(line));
    if ((Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 3) found.push(`line ${line.getAttribute('class')} is pale`);
  }
  for (const input of document.querySelectorAll('input')) {
    if (!input.labels.length) found.push(`no label: ${input.name}`);
  }
  for (const one of document.querySelectorAll('a, button')) {
    if (!one.textContent.trim()) found.push('a control has no name');
  }
  for (const svg of document.querySelectorAll('svg')) {
    if (svg.getAttribute('aria-hidden') === 'true') continue;
    if (!svg.getAttribute('aria-label')) found.push('a drawing has no name');
  }
  for (const table of document.querySelectorAll('table')) {
    if (!table.caption) found.push('a table has no caption');
    for (const head of table.querySelectorAll('th')) if (!head.scope) found.push('a header has no scope');
  }
  const ids = [...document.querySelectorAll('[id]')].map((one) => one.id);
  if (new Set(ids).size !== ids.length) found.push('an id is used twice');
  if (document.querySelectorAll('h1').length !== 1) found.push('there is not one h1');
  if (!document.documentElement.lang) found.push('no language');
  const width = document.documentElement.scrollWidth;
  if (width > innerWidth) found.push(`wider than the window: ${width}`);
  return found;
})()"""

FIRST_CHART = """(() => {
  const one = document.querySelector('.chart');
  one.scrollIntoView();
  const box = one.getBoundingClientRect();
  return [box.left, box.top, box.width];
})()"""


def look(name, path="", **how):
    parts = urllib.parse.urlsplit(LINK)
    # The first request exchanges the token for a cookie.
    browser.open(LINK if not path else f"{parts.scheme}://{parts.netloc}{path}", **how)
    if how.get("scripts", True):
        if not path:
            browser.wait("document.getElementById('live').textContent === 'Live'")
        problems.extend(f"{name}: {one}" for one in browser.run(RULES))
    browser.screenshot(f"{FOLDER}/{STAGE}-{name}.png")


browser = Browser()
try:
    look("light")
    if "token" in browser.run("location.href"):
        problems.append("the address still has the token")
    if STAGE == "train":
        look("dark", scheme="dark")
        look("phone", width=390, height=800)
        look("no-script", scripts=False)
        look("parameters", path="/parameters")
        look("parameter", path="/parameter?id=0")
        look("parameters-phone", path="/parameters?q=weight", width=390, height=800)
        # Values change without a reload.
        look("live")
        step = browser.run("document.querySelector('#summary dd').textContent")
        browser.wait(f"document.querySelector('#summary dd').textContent !== '{step}'")
        # A drag across a chart shows a part of the steps.
        box = browser.run(FIRST_CHART)
        browser.drag(box[0] + box[2] * 0.3, box[1] + 40, box[0] + box[2] * 0.6)
        browser.wait("location.search.startsWith('?from=') && document.readyState === 'complete'")
        browser.screenshot(f"{FOLDER}/{STAGE}-zoom.png")
        # The keyboard reaches everything: the first stop is the link to the content.
        browser.ask("Input.dispatchKeyEvent", type="keyDown", key="Tab", code="Tab", windowsVirtualKeyCode=9)
        if browser.run("document.activeElement.className") != "skip":
            problems.append("the first stop of the keyboard is not the link to the content")
    elif STAGE == "down":
        browser.wait("document.getElementById('shards').textContent.includes('down')")
        look("dark", scheme="dark")
    else:
        browser.wait("document.getElementById('entries').textContent.includes('skipped step')")
        if not browser.run("document.querySelectorAll('#curves path.mark').length"):
            problems.append("no chart marks the skipped step")
    problems.extend(browser.problems)
finally:
    browser.close()
for problem in sorted(set(problems)):
    print("PROBLEM", problem)
print(f"{STAGE}: {len(set(problems))} problems")
sys.exit(bool(problems))
