#include "gemloupe/report/html_page.h"

namespace gemloupe {
inline namespace v0 {
namespace {

// Colours: paper and ink, and one amber whose strength is a cell's heat. Text keeps a contrast of 4.5 on all of them.
constexpr std::string_view kStyle = R"css(
.gemloupe { color-scheme: light dark; --paper: #fbfaf7; --card: #fff; --ink: #1d1b16; --quiet: #6a655a; --line: #e4e0d6;
  --heat: 226 160 40; --mark: #1d6f5c; --focus: #2458c7; }
@media (prefers-color-scheme: dark) { .gemloupe { --paper: #14130f; --card: #1b1a15; --ink: #ece7da; --quiet: #a29b8b;
  --line: #343127; --heat: 148 97 8; --mark: #6fd0b4; --focus: #8fb2ff; } }
.gemloupe, .gemloupe * { box-sizing: border-box; }
.gemloupe { background: var(--paper); color: var(--ink); padding: .5rem;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
body.gemloupe { margin: 0; min-height: 100vh; padding: 2rem clamp(1rem, 3vw, 3rem); }
.gemloupe h1 { font-size: 1.35rem; font-weight: 600; margin: 0; overflow-wrap: anywhere; }
.gemloupe h2 { font-size: 1rem; font-weight: 600; margin: 2rem 0 .6rem; }
.gemloupe h3 { font-size: .9rem; font-weight: 600; margin: 1.2rem 0 .4rem; }
.gemloupe h3 small, .gemloupe .subtitle, .gemloupe footer { color: var(--quiet); font-weight: 400; }
.gemloupe p { max-width: 46rem; margin: .3rem 0; }
.gemloupe p.subtitle { max-width: 60rem; margin: .2rem 0 1.4rem; }
.gemloupe pre, .gemloupe dt, .gemloupe .data td:first-child {
  font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: .82rem; }
.gemloupe pre { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .8rem 1rem; overflow: auto; }
.gemloupe .scroll { overflow-x: auto; }
.gemloupe .data { border-collapse: collapse; font-size: .87rem; }
.gemloupe .data th { text-align: left; font-weight: 500; color: var(--quiet); }
.gemloupe .data th, .gemloupe .data td { padding: .28rem 1.2rem .28rem 0; border-bottom: 1px solid var(--line);
  text-align: left; vertical-align: top; }
.gemloupe .data td.n { text-align: right; font-variant-numeric: tabular-nums; }
.gemloupe dl { display: grid; grid-template-columns: max-content minmax(0, 60rem); gap: .15rem 1.5rem; margin: 0; font-size: .87rem; }
.gemloupe dt { color: var(--quiet); }
.gemloupe dd { margin: 0; overflow-wrap: anywhere; }
.gemloupe footer { margin-top: 2.5rem; font-size: .78rem; border-top: 1px solid var(--line); padding-top: .6rem; overflow-wrap: anywhere; }
.gemloupe :focus-visible { outline: 2px solid var(--focus); outline-offset: -2px; }
)css";

constexpr std::string_view kMapStyle = R"css(
.gemloupe .lens { display: grid; grid-template-columns: minmax(0, max-content) 19rem; gap: 1.25rem; align-items: start; }
.gemloupe .map { overflow: auto; max-height: calc(100vh - 5rem); border: 1px solid var(--line); border-radius: 6px; background: var(--card);
  width: fit-content; max-width: 100%; }
.gemloupe .map table { border-collapse: separate; border-spacing: 0; font-size: .78rem; line-height: 1.25; }
.gemloupe .map th { font-weight: 500; background: var(--card); position: sticky; z-index: 1; }
.gemloupe .map thead th { top: 0; border-bottom: 1px solid var(--line); padding: .35rem .4rem; text-align: left; vertical-align: bottom; }
.gemloupe .map tbody th { left: 0; border-right: 1px solid var(--line); padding: 0 .55rem; text-align: right; color: var(--quiet);
  font-variant-numeric: tabular-nums; }
.gemloupe .map thead th:first-child { left: 0; z-index: 2; border-right: 1px solid var(--line); color: var(--quiet); }
.gemloupe .map td, .gemloupe .map thead th:not(:first-child) { width: 5.4rem; min-width: 5.4rem; max-width: 5.4rem; white-space: pre; overflow: hidden;
  text-overflow: ellipsis; }
.gemloupe .map thead small { display: block; color: var(--quiet); font-weight: 400; font-size: .68rem; }
.gemloupe .map td { padding: .2rem .4rem; background: rgb(var(--heat) / calc(var(--p, 0) * 100%)); border: 1px solid transparent; cursor: default; }
.gemloupe .map td.hit { box-shadow: inset 0 -2px 0 var(--mark); }
.gemloupe .map td.on { border-color: var(--ink); }
.gemloupe .legend { display: flex; flex-wrap: wrap; gap: .4rem 1.4rem; align-items: center; margin: 0 0 .6rem; font-size: .78rem; color: var(--quiet); }
.gemloupe .legend i { display: inline-block; width: 7rem; height: .7rem; border-radius: 2px; border: 1px solid var(--line); margin: 0 .4rem;
  vertical-align: -1px; background: linear-gradient(90deg, rgb(var(--heat) / 0%), rgb(var(--heat) / 100%)); }
.gemloupe .legend b { display: inline-block; width: 1.1rem; height: .7rem; margin-right: .4rem; box-shadow: inset 0 -2px 0 var(--mark); }
.gemloupe .detail { position: sticky; top: 1rem; border: 1px solid var(--line); border-radius: 6px; background: var(--card); padding: .8rem 1rem; min-height: 12rem; }
.gemloupe .detail h3 { margin: 0 0 .6rem; overflow-wrap: anywhere; }
.gemloupe .detail ol { list-style: none; margin: 0; padding: 0; font-size: .82rem; }
.gemloupe .detail li { display: grid; grid-template-columns: minmax(0, 1fr) 3.4rem; padding: .16rem .3rem; margin-bottom: 2px; border-radius: 3px;
  background: linear-gradient(90deg, rgb(var(--heat) / 55%) calc(var(--p) * 100%), transparent 0); }
.gemloupe .detail li span { white-space: pre-wrap; overflow-wrap: anywhere; }
.gemloupe .detail li span + span { text-align: right; font-variant-numeric: tabular-nums; color: var(--ink); }
@media (max-width: 60rem) { .gemloupe .lens { grid-template-columns: minmax(0, 1fr); } .gemloupe .detail { position: static; } }
)css";

// Pointing at a cell, or walking to it with the arrow keys, shows its details.
constexpr std::string_view kMapScript = R"js(
for (const lens of document.querySelectorAll(".gemloupe .lens:not([data-on])")) {
  lens.dataset.on = "";
  const data = JSON.parse(lens.querySelector("script").textContent);
  const rows = [...lens.querySelectorAll("tbody tr")].map(row => [...row.querySelectorAll("td")]);
  const detail = lens.querySelector(".detail");
  let on = null;
  const show = (r, c) => {
    const cell = rows[r][c];
    if (on) { on.classList.remove("on"); on.tabIndex = -1; }
    on = cell; cell.classList.add("on"); cell.tabIndex = 0;
    const title = document.createElement("h3");
    title.textContent = `${data.row} ${data.rows[r]}, ${data.column} ${data.columns[c]}`;
    const list = document.createElement("ol");
    for (const [text, value] of data.cells[r][c]) {
      const item = document.createElement("li");
      item.style.setProperty("--p", value);
      for (const part of [text, value === null ? "nan" : value < 0.0005 ? value.toExponential(0) : value.toFixed(3)]) {
        const span = document.createElement("span");
        span.textContent = part;
        item.append(span);
      }
      list.append(item);
    }
    detail.replaceChildren(title, list);
  };
  const place = target => {
    const cell = target.closest("td");
    return cell && [cell.parentNode.sectionRowIndex, cell.cellIndex - 1];
  };
  const table = lens.querySelector("table");
  table.addEventListener("pointerover", event => { const at = place(event.target); if (at) show(...at); });
  table.addEventListener("focusin", event => { const at = place(event.target); if (at) show(...at); });
  table.addEventListener("keydown", event => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    const at = step && place(event.target);
    if (!at) return;
    event.preventDefault();
    const r = Math.min(Math.max(at[0] + step[0], 0), rows.length - 1);
    const c = Math.min(Math.max(at[1] + step[1], 0), rows[r].length - 1);
    rows[r][c].focus();
  });
  show(rows.length - 1, rows[0].length - 1);
}
)js";

}  // namespace

std::string html_escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string script_escaped(std::string_view json_text) {
  std::string out;
  for (char c : json_text)
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  return out;
}

namespace {

std::string with_style(bool has_heat_map, std::string_view body) {
  std::string out = "<style>";
  out += kStyle;
  if (has_heat_map) out += kMapStyle;
  out += "</style>\n";
  out += body;
  if (has_heat_map) out += "<script>" + std::string(kMapScript) + "</script>\n";
  return out;
}

}  // namespace

std::string html_page(std::string_view title, std::string_view body, bool has_heat_map) {
  return "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta name=\"generator\" content=\"gemloupe\">\n<title>" +
         html_escaped(title) + "</title>\n</head>\n<body class=\"gemloupe\">\n" + with_style(has_heat_map, body) +
         "</body>\n</html>\n";
}

std::string html_fragment(std::string_view body, bool has_heat_map) {
  return "<div class=\"gemloupe\">\n" + with_style(has_heat_map, body) + "</div>\n";
}

}  // namespace v0
}  // namespace gemloupe
