#include "server/coordinator/page/page_shell.h"

#include <cstdint>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/coordinator/page/html.h"

namespace kaon::coordinator {

namespace {

// Contrast of text is 4.5 or more in both schemes, of lines 3 or more.
constexpr char kStyle[] = R"css(
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--soft:#57606a;--line:#d0d7de;--card:#f6f8fa;
--link:#0550ae;--good:#116329;--bad:#b3261e;--c0:#0969da;--c1:#bc4c00;--c2:#1a7f37;--c3:#8250df;
--c4:#bf3989;--c5:#7d5e00;--c6:#0e7490;--c7:#57606a}
@media(prefers-color-scheme:dark){:root{--bg:#0d1117;--fg:#e6edf3;--soft:#9aa5b1;--line:#30363d;
--card:#161b22;--link:#79b8ff;--good:#56d364;--bad:#ff8b80;--c0:#58a6ff;--c1:#ffa657;--c2:#56d364;
--c3:#d2a8ff;--c4:#ff7bbd;--c5:#e3b341;--c6:#39c5cf;--c7:#9aa5b1}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif}
header,main{max-width:1320px;margin:0 auto;padding:0 16px}
header{display:flex;flex-wrap:wrap;gap:4px 20px;align-items:baseline;padding-top:12px}
h1{font-size:22px;margin:0}h1 span{font-weight:400;color:var(--soft);overflow-wrap:anywhere}
h2{font-size:17px;margin:26px 0 8px}
nav{display:flex;flex-wrap:wrap;gap:4px 16px}a{color:var(--link)}
a:focus-visible,button:focus-visible,input:focus-visible,.wide:focus-visible{
outline:3px solid var(--link);outline-offset:2px}
.skip{position:absolute;left:-999px}.skip:focus{left:8px;top:8px;background:var(--bg);padding:6px}
.phase{overflow-wrap:anywhere;margin:12px 0}
.good{color:var(--good);font-weight:600}.bad{color:var(--bad);font-weight:600}
.none,small,figcaption small{color:var(--soft)}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(138px,1fr));gap:10px;margin:0}
dl div{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:8px 12px}
dt{color:var(--soft);font-size:13px}dd{margin:0;font-size:19px;overflow-wrap:anywhere;
font-variant-numeric:tabular-nums}dd.long{font-size:15px;line-height:28px}
#curves{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,520px),1fr));gap:14px}
figure{margin:0;background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px;
min-width:0}
.chart{width:100%;height:auto;display:block;touch-action:pan-y}
.chart text{font:12px system-ui,sans-serif;fill:var(--soft)}
.chart .y{text-anchor:end}.chart .x{text-anchor:middle}
.grid{stroke:var(--line)}.axis{stroke:var(--soft)}.mark{fill:var(--bad)}
.zoom{fill:var(--c0);opacity:.2}
polyline,.legend line{fill:none;stroke-width:2;stroke-linejoin:round}.dashed{stroke-dasharray:5 4}
.s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.s3{stroke:var(--c3)}
.s4{stroke:var(--c4)}.s5{stroke:var(--c5)}.s6{stroke:var(--c6)}.s7{stroke:var(--c7)}
.p0{fill:var(--c0)}.p1{fill:var(--c1)}.p2{fill:var(--c2)}.p3{fill:var(--c3)}
.p4{fill:var(--c4)}.p5{fill:var(--c5)}.p6{fill:var(--c6)}.p7{fill:var(--c7)}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:2px 16px;margin:6px 0 0;padding:0;
font-size:13px}
.legend li{overflow-wrap:anywhere}.legend svg{width:22px;height:8px}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:14px;margin:2px}
caption{text-align:left;color:var(--soft);padding:2px 0}
th,td{text-align:left;padding:4px 10px;border-bottom:1px solid var(--line);vertical-align:top}
tbody th{font-weight:600}thead th{color:var(--soft);font-weight:600;white-space:nowrap}
td{overflow-wrap:break-word;max-width:34em}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.meter,.bar{display:block;width:100%;min-width:90px;height:6px;margin-top:3px}
.bar{height:12px;min-width:180px}
.rail{fill:var(--line)}.used{fill:var(--c0)}.full{fill:var(--bad)}
form{display:flex;flex-wrap:wrap;gap:8px 12px;align-items:center;margin:8px 0}
input,button{font:inherit;padding:4px 8px;border:1px solid var(--soft);border-radius:6px;
background:var(--bg);color:var(--fg)}input[type=number]{width:8em}
@media(max-width:560px){th,td{padding:4px 6px}dd{font-size:17px}.chart text{font-size:19px}}
)css";

// Replaces the parts that the server sends. Keeps what a reader has scrolled to and focused.
constexpr char kScript[] = R"js(
(() => {
  const live = document.getElementById('live'), pause = document.getElementById('pause');
  if (!live) return;
  let source = null, timer = 0, drag = null;
  const replace = (part) => {
    const at = document.getElementById(part.id);
    if (!at || (drag && part.id === 'curves')) return;
    const regions = () => [...at.querySelectorAll('.wide')];
    const before = regions().map((one) => one.scrollLeft);
    const focused = regions().indexOf(document.activeElement);
    at.innerHTML = part.html;
    regions().forEach((one, i) => { one.scrollLeft = before[i] || 0; });
    if (focused >= 0 && regions()[focused]) regions()[focused].focus({preventScroll: true});
  };
  const close = () => { clearTimeout(timer); if (source) source.close(); source = null; };
  const open = () => {
    close();
    source = new EventSource('/events' + location.search);
    source.onopen = () => { live.textContent = 'Live'; };
    source.onmessage = (event) => replace(JSON.parse(event.data));
    source.onerror = (event) => {
      live.textContent = 'Connection lost, trying again';
      // A refusal, of a full server or of an old token: the browser does not try again.
      if (event.target.readyState !== 2) return;
      live.textContent = 'Refused. Reload the page';
      timer = setTimeout(open, 10000);
    };
  };
  pause.hidden = false;
  pause.onclick = () => {
    if (source) { close(); live.textContent = 'Paused'; pause.textContent = 'Resume'; }
    else { open(); pause.textContent = 'Pause'; }
  };
  addEventListener('pagehide', close);
  addEventListener('pageshow', (event) => { if (event.persisted) open(); });
  open();
  // A drag across a chart shows those steps alone.
  const stepAt = (svg, x) => {
    const box = svg.getBoundingClientRect(), at = svg.dataset;
    const part = ((x - box.left) / box.width - at.left) / (at.right - at.left);
    return Math.round(+at.first + Math.min(1, Math.max(0, part)) * (at.last - at.first));
  };
  const curves = document.getElementById('curves');
  curves.addEventListener('pointerdown', (event) => {
    const svg = event.target.closest('.chart');
    if (!svg || event.button !== 0) return;
    const rect = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
    rect.setAttribute('class', 'zoom');
    rect.setAttribute('height', '180');
    drag = {svg, rect, from: event.clientX};
  });
  addEventListener('pointermove', (event) => {
    if (!drag) return;
    const box = drag.svg.getBoundingClientRect(), scale = 640 / box.width;
    const left = Math.min(drag.from, event.clientX), width = Math.abs(drag.from - event.clientX);
    if (width < 6) return;
    if (!drag.rect.isConnected) drag.svg.append(drag.rect);
    drag.rect.setAttribute('x', (left - box.left) * scale);
    drag.rect.setAttribute('width', width * scale);
  });
  addEventListener('pointercancel', () => { if (drag) drag.rect.remove(); drag = null; });
  addEventListener('pointerup', (event) => {
    if (!drag) return;
    const done = drag, ends = [stepAt(done.svg, done.from), stepAt(done.svg, event.clientX)];
    drag = null;
    done.rect.remove();
    if (Math.abs(done.from - event.clientX) < 6) return;
    location.search = '?from=' + Math.min(...ends) + '&to=' + Math.max(...ends);
  });
})();
)js";

std::string RandomNonce() {
  std::random_device device;
  return absl::StrFormat("%08x%08x%08x%08x", device(), device(), device(), device());
}

std::string TitleOf(absl::string_view id) {
  static const std::vector<std::pair<absl::string_view, const char*>> titles = {
      {"summary", "Now"},   {"curves", "Training"}, {"phases", "Phases of a step"},
      {"shards", "Shards"}, {"tiers", "Tiers"},     {"workers", "Workers"},
      {"entries", "Log"},   {"events", "Events"},   {"checkpoints", "Checkpoints"}};
  for (const auto& [name, title] : titles) {
    if (name == id) return title;
  }
  return std::string(id);
}

std::string RangeForm(const Range& range) {
  const auto value = [](uint64_t step) {
    return step == 0 || step == UINT64_MAX ? std::string() : absl::StrCat(step);
  };
  return absl::StrCat(
      "<form method=\"get\" action=\"/\"><label>Steps from <input type=\"number\" name=\"from\" "
      "min=\"1\" ",
      "value=\"", value(range.from),
      "\"></label><label>to <input type=\"number\" name=\"to\" min=\"1\" value=\"", value(range.to),
      "\"></label><button>Show</button> <a href=\"/?last=1000\">Last 1,000</a> ",
      "<a href=\"/?last=100\">Last 100</a> <a href=\"/?last=all\">All</a> ", "<a href=\"/steps.csv",
      Escape(range.query), "\" download>Download as CSV</a></form>");
}

}  // namespace

metrics::HttpResponse PageResponse(absl::string_view title, absl::string_view job,
                                   absl::string_view main) {
  const std::string nonce = RandomNonce();
  metrics::HttpResponse response;
  response.content_type = "text/html; charset=utf-8";
  response.headers.push_back(
      {"Content-Security-Policy",
       absl::StrCat("default-src 'none'; style-src 'nonce-", nonce, "'; script-src 'nonce-", nonce,
                    "'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'self'; ",
                    "frame-ancestors 'none'")});
  response.body = absl::StrCat(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" ",
      "content=\"width=device-width, initial-scale=1\"><title>", Escape(title),
      "</title><link rel=\"icon\" href=\"data:,\"><style nonce=\"", nonce, "\">", kStyle,
      "</style><noscript><meta http-equiv=\"refresh\" content=\"10\"></noscript></head>\n<body>",
      "<a class=\"skip\" href=\"#main\">Skip to content</a><header><h1>Kaon <span>", Escape(job),
      "</span></h1><nav aria-label=\"Pages\"><a href=\"/\">Overview</a><a href=\"/parameters\">",
      "Parameters</a><a href=\"/metrics\">Metrics</a></nav></header>\n<main id=\"main\">", main,
      "</main>\n<script nonce=\"", nonce, "\">", kScript, "</script></body></html>\n");
  return response;
}

std::string AgeText(absl::Duration age) {
  if (age < kOldFacts || age == absl::InfiniteDuration()) return "";
  return absl::StrCat("Values are ", absl::ToInt64Seconds(age), " s old");
}

std::string OverviewHtml(const std::vector<Section>& sections, const Range& range,
                         absl::Duration age) {
  std::string html = absl::StrCat(
      "<p><span id=\"live\" role=\"status\">Reload this page for newer values</span> "
      "<span id=\"age\" class=\"bad\">",
      AgeText(age), "</span> <button id=\"pause\" hidden>Pause</button></p>");
  for (const Section& section : sections) {
    absl::StrAppend(&html, "<section aria-labelledby=\"h-", section.id, "\"><h2 id=\"h-",
                    section.id, "\">", TitleOf(section.id), "</h2>",
                    section.id == "curves" ? RangeForm(range) : "", "<div id=\"", section.id, "\">",
                    section.html, "</div></section>\n");
  }
  return html;
}

}  // namespace kaon::coordinator
