#include "gemloupe/report/html_page.h"

namespace gemloupe {
inline namespace v0 {
namespace {

// Colours: paper and ink, and one amber whose strength is a cell's heat. Text keeps a contrast of 4.5 on all of them.
constexpr std::string_view kStyle = R"css(
:root { color-scheme: light dark; --paper: #fbfaf7; --card: #fff; --ink: #1d1b16; --quiet: #6a655a; --line: #e4e0d6;
  --heat: 226 160 40; --mark: #1d6f5c; --focus: #2458c7; }
@media (prefers-color-scheme: dark) { :root { --paper: #14130f; --card: #1b1a15; --ink: #ece7da; --quiet: #a29b8b;
  --line: #343127; --heat: 148 97 8; --mark: #6fd0b4; --focus: #8fb2ff; } }
* { box-sizing: border-box; }
body { margin: 0; padding: 2rem clamp(1rem, 3vw, 3rem); background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.35rem; font-weight: 600; margin: 0; }
h2 { font-size: 1rem; font-weight: 600; margin: 2rem 0 .6rem; }
h3 { font-size: .9rem; font-weight: 600; margin: 1.2rem 0 .4rem; }
h3 small, .subtitle, caption, footer { color: var(--quiet); font-weight: 400; }
.subtitle { margin: .2rem 0 0; }
p { max-width: 46rem; margin: .3rem 0; }
pre, code, .mono { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: .85em; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .8rem 1rem; overflow: auto; }
.scroll { overflow-x: auto; }
table.data { border-collapse: collapse; font-size: .87rem; }
table.data th { text-align: left; font-weight: 500; color: var(--quiet); }
table.data th, table.data td { padding: .28rem 1.2rem .28rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
table.data td.n { text-align: right; font-variant-numeric: tabular-nums; }
table.data td:first-child { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: .82rem; }
dl { display: grid; grid-template-columns: max-content minmax(0, 60rem); gap: .15rem 1.5rem; margin: 0; font-size: .87rem; }
dt { color: var(--quiet); } dd { margin: 0; overflow-wrap: anywhere; }
footer { margin-top: 2.5rem; font-size: .78rem; border-top: 1px solid var(--line); padding-top: .6rem; }
:focus-visible { outline: 2px solid var(--focus); outline-offset: -2px; }
)css";

constexpr std::string_view kMapStyle = R"css(
.lens { display: grid; grid-template-columns: minmax(0, 1fr) 19rem; gap: 1.25rem; align-items: start; }
.map { overflow: auto; max-height: calc(100vh - 5rem); border: 1px solid var(--line); border-radius: 6px; background: var(--card);
  width: fit-content; max-width: 100%; }
.map table { border-collapse: separate; border-spacing: 0; font-size: .78rem; line-height: 1.25; }
.map th { font-weight: 500; background: var(--card); position: sticky; z-index: 1; }
.map thead th { top: 0; border-bottom: 1px solid var(--line); padding: .35rem .4rem; text-align: left; vertical-align: bottom; }
.map tbody th { left: 0; border-right: 1px solid var(--line); padding: 0 .55rem; text-align: right; color: var(--quiet);
  font-variant-numeric: tabular-nums; }
.map thead th:first-child { left: 0; z-index: 2; border-right: 1px solid var(--line); color: var(--quiet); }
.map td, .map thead th:not(:first-child) { width: 5.4rem; min-width: 5.4rem; max-width: 5.4rem; white-space: pre; overflow: hidden;
  text-overflow: ellipsis; }
.map thead small { display: block; color: var(--quiet); font-weight: 400; font-size: .68rem; }
.map td { padding: .2rem .4rem; background: rgb(var(--heat) / calc(var(--p, 0) * 100%)); border: 1px solid transparent; cursor: default; }
.map td.hit { box-shadow: inset 0 -2px 0 var(--mark); }
.map td.on { border-color: var(--ink); }
.legend { display: flex; flex-wrap: wrap; gap: .4rem 1.4rem; align-items: center; margin: 0 0 .6rem; font-size: .78rem; color: var(--quiet); }
.legend i { display: inline-block; width: 7rem; height: .7rem; border-radius: 2px; border: 1px solid var(--line); margin: 0 .4rem;
  vertical-align: -1px; background: linear-gradient(90deg, rgb(var(--heat) / 0%), rgb(var(--heat) / 100%)); }
.legend b { display: inline-block; width: 1.1rem; height: .7rem; margin-right: .4rem; box-shadow: inset 0 -2px 0 var(--mark); }
.detail { position: sticky; top: 1rem; border: 1px solid var(--line); border-radius: 6px; background: var(--card); padding: .8rem 1rem; min-height: 12rem; }
.detail h3 { margin: 0 0 .6rem; overflow-wrap: anywhere; }
.detail ol { list-style: none; margin: 0; padding: 0; font-size: .82rem; }
.detail li { display: grid; grid-template-columns: minmax(0, 1fr) 3.4rem; padding: .16rem .3rem; margin-bottom: 2px; border-radius: 3px;
  background: linear-gradient(90deg, rgb(var(--heat) / 55%) calc(var(--p) * 100%), transparent 0); }
.detail li span { white-space: pre-wrap; overflow-wrap: anywhere; }
.detail li span + span { text-align: right; font-variant-numeric: tabular-nums; color: var(--ink); }
@media (max-width: 60rem) { .lens { grid-template-columns: minmax(0, 1fr); } .detail { position: static; } }
)css";

// Pointing at a cell, or walking to it with the arrow keys, shows its details.
constexpr std::string_view kMapScript = R"js(
for (const lens of document.querySelectorAll(".lens")) {
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
      for (const part of [text, value < 0.0005 ? value.toExponential(0) : value.toFixed(3)]) {
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
    return cell && [rows.findIndex(row => row.includes(cell)), cell.cellIndex - 1];
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

std::string html_page(std::string_view title, std::string_view body, bool has_heat_map) {
  std::string page =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"generator\" content=\"gemloupe\">\n<title>" +
      html_escaped(title) + "</title>\n<style>";
  page += kStyle;
  if (has_heat_map) page += kMapStyle;
  page += "</style>\n</head>\n<body>\n";
  page += body;
  if (has_heat_map) page += "<script>" + std::string(kMapScript) + "</script>\n";
  return page + "</body>\n</html>\n";
}

}  // namespace v0
}  // namespace gemloupe
