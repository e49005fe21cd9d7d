// Shared: data from the page, colours from the style sheet, elements without innerHTML.
const data = (name) => JSON.parse(document.getElementById(`data-${name}`).textContent);
const byId = (id) => document.getElementById(id);
const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function element(tag, text, className) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

// Figures name colour roles ("--compute"); the browser fills in light or dark.
function coloured(value) {
  if (typeof value === "string") return value.startsWith("--") ? token(value) : value;
  if (Array.isArray(value)) return value.map(coloured);
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, coloured(inner)]));
  }
  return value;
}

const CONFIG = { displayModeBar: false, doubleClick: false, showTips: false };

function axis(extra) {
  return {
    gridcolor: token("--line"), linecolor: token("--rule"), zerolinecolor: token("--rule"), tickcolor: token("--rule"),
    zeroline: false, automargin: true, ...extra,
    ...(extra.title && { title: { ...extra.title, font: { size: 13 }, standoff: 10 } }),
  };
}

function layout(extra) {
  return {
    font: { family: token("--sans"), size: 13, color: token("--soft") },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 8, r: 8, t: 8, b: 8 }, showlegend: false,
    hoverlabel: {
      bgcolor: token("--surface"), bordercolor: token("--rule"), align: "left",
      font: { family: token("--sans"), size: 13, color: token("--ink") },
    },
    ...extra,
  };
}

// Charts follow the colour scheme, the width of the page and the printer: each registers its own drawing function.
const drawings = [];
function drawn(draw) {
  drawings.push(draw);
  draw();
}
const redraw = () => drawings.forEach((draw) => draw());

// Width of a portrait page of A4 or Letter inside its margins, in CSS pixels.
const PAPER = 680;
let printing = false;

function plot(target, traces, shape, config) {
  const width = printing ? PAPER : target.clientWidth;
  Plotly.react(target, traces, layout({ ...shape, width }), { ...CONFIG, ...config });
}

function followPage() {
  let width = document.documentElement.clientWidth;
  window.addEventListener("resize", () => {
    if (document.documentElement.clientWidth === width) return;
    width = document.documentElement.clientWidth;
    redraw();
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  for (const [event, paper] of [["beforeprint", true], ["afterprint", false]]) {
    window.addEventListener(event, () => {
      printing = paper;
      document.documentElement.classList.toggle("printing", paper);
      redraw();
    });
  }
}
