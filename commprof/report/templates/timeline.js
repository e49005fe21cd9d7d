// The timeline: the segments in view are drawn as one filled path per colour and drawn again after each zoom; pointing
// searches the segments themselves, so that it finds what is too small to see.
function startTimeline() {
  const given = data("timeline");
  if (!given) return () => null;
  const chart = byId("chart-timeline");
  const tip = byId("tip");
  const pick = byId("timeline-pick");
  const { divisor, strings, span } = given;
  const entries = given.entries;
  entries.forEach((entry) => entry.lanes.forEach((lane) => { lane.pieces = piecesOf(lane, entry.stretches.exposed); }));
  entries.forEach((entry) => { entry.before = timesBefore(entry); });
  const home = [Math.min(...entries.map((entry) => entry.start)), span];
  let range = home.slice();
  let rows = [];
  let focus = null;

  // A lane in pieces [start, end, role, ink, segment]: communication is exposed where no compute runs on the rank.
  function piecesOf(lane, exposed) {
    const pieces = [];
    const role = lane.kind === "comm" ? "hidden" : lane.kind;
    let at = 0;
    for (let i = 0; i < lane.start.length; i += 1) {
      let start = lane.start[i];
      const end = lane.end[i];
      // Segments that stand for many kernels with gaps between them are paler, in quarters.
      const ink = Math.min(Math.max(Math.ceil((4 * lane.busy[i]) / (end - start)), 1), 4);
      if (lane.kind === "comm") {
        while (at > 0 && exposed[2 * at - 1] > start) at -= 1;
        while (2 * at < exposed.length && exposed[2 * at + 1] <= start) at += 1;
        for (let j = at; 2 * j < exposed.length && exposed[2 * j] < end; j += 1) {
          const from = Math.max(start, exposed[2 * j]);
          const to = Math.min(end, exposed[2 * j + 1]);
          if (from > start) pieces.push([start, from, role, ink, i]);
          pieces.push([from, to, "exposed", ink, i]);
          start = to;
        }
      }
      if (start < end) pieces.push([start, end, role, ink, i]);
    }
    return pieces;
  }

  // For each part of a strip a function: nanoseconds of it before an instant. From the stretches, or, where these are
  // too many to be listed, from their exact sums in equal pieces of the step.
  function timesBefore(entry) {
    return Object.fromEntries(Object.keys(entry.stretches).map((part) => {
      const flat = entry.stretches[part];
      const share = entry.shares && entry.shares[part];
      const piece = share ? (entry.end - entry.start) / share.length : 0;
      const starts = share ? share.map((_, i) => entry.start + i * piece) : flat.filter((_, i) => i % 2 === 0);
      const ends = share ? share.map((_, i) => entry.start + (i + 1) * piece) : flat.filter((_, i) => i % 2);
      const sums = [0];
      starts.forEach((start, i) => sums.push(sums[i] + (share ? share[i] : ends[i] - start)));
      return [part, (time) => {
        const i = after(starts, time) - 1;
        if (i < 0) return 0;
        return sums[i] + (sums[i + 1] - sums[i]) * Math.min(1, (time - starts[i]) / (ends[i] - starts[i]));
      }];
    }));
  }

  // Number of sorted values that are at most ``value``.
  function after(values, value) {
    let [low, high] = [0, values.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] <= value) low = middle + 1; else high = middle;
    }
    return low;
  }

  // A rank's strip: every column of pixels is divided like the time it stands for; equal neighbours are joined.
  function stripOf(row, pixel) {
    const { entry } = row;
    const [first, last] = [Math.max(range[0], entry.start), Math.min(range[1], entry.end)];
    const columns = Math.max(1, Math.ceil((last - first) / pixel));
    const out = [];
    let open = null;
    for (let i = 0; i < columns; i += 1) {
      const [from, to] = [first + i * pixel, Math.min(first + (i + 1) * pixel, last)];
      const shares = STRIP.map((part) => Math.round((20 * (entry.before[part](to) - entry.before[part](from))) / (to - from)));
      const key = shares.join();
      if (open && open.key === key) open.to = to;
      else out.push(open = { from, to, key, shares });
    }
    return out.flatMap(({ from, to, shares }) => {
      let y = row.y;
      const boxes = STRIP.map((part, i) => [from, to, y, y += (row.height * shares[i]) / 20, `${part} 4`]);
      return [...boxes, [from, to, y, row.y + row.height, "compute 4"]].filter((box) => box[3] - box[2] > 1e-9);
    });
  }

  // The rows from top to bottom; y counts downwards in units of one plain row.
  function arrange() {
    const chosen = !pick || pick.value === "all" ? entries : [entries[Number(pick.value)]];
    const tight = chosen.length > 4;
    rows = [];
    let y = 0;
    for (const entry of chosen) {
      rows.push({ name: `<b>${entry.name}</b>`, y, height: tight ? 1 : 0.8, entry });
      y += tight ? 1.12 : 1;
      for (const lane of entry.lanes) {
        if (tight && lane.kind === "copy") continue;
        const height = lane.kind === "copy" || tight ? 0.55 : 0.82;
        const name = chart.clientWidth < 640 ? lane.name.replace("communication", "comm.") : lane.name;
        rows.push({ name: lane.row ? "" : name, y, height, lane, entry });
        y += height + 0.14;
      }
      y += tight ? 0.3 : 0.55;
    }
    return { rows, height: y - 0.3, unit: tight ? 20 : 30 };
  }

  // The pieces in view. Short ones keep their true width, so that many of them blend to the right density; a piece
  // that stands alone becomes at least three quarters of a pixel wide, so that it can be seen.
  function piecesIn(row, pixel) {
    const layers = row.lane.pieces;
    const out = [];
    let before = -Infinity;
    layers.forEach(([start, end, role, ink], i) => {
      const next = i + 1 < layers.length ? layers[i + 1][0] : Infinity;
      if (end > range[0] && start < range[1]) {
        const alone = end - start < pixel && start - before > 2 * pixel && next - end > 2 * pixel;
        out.push([start, alone ? start + 0.75 * pixel : end, row.y, row.y + row.height, `${role} ${ink}`]);
      }
      before = end;
    });
    return out;
  }

  const STRIP = ["idle", "copy", "exposed"];
  const LOOKS = ["compute", "hidden", "copy", "idle", "exposed"].flatMap((role) => [1, 2, 3, 4].map((ink) => `${role} ${ink}`));

  function traces(width) {
    const pixel = (range[1] - range[0]) / width;
    const paths = Object.fromEntries(LOOKS.map((look) => [look, { x: [], y: [] }]));
    for (const row of rows) {
      for (const [start, end, top, bottom, look] of row.lane ? piecesIn(row, pixel) : stripOf(row, pixel)) {
        const path = paths[look] || paths["compute 4"];
        const from = start / divisor;
        const to = end / divisor;
        path.x.push(from, from, to, to, from, null);
        path.y.push(top, bottom, bottom, top, top, null);
      }
    }
    const filled = LOOKS.filter((look) => paths[look].x.length).map((look) => {
      const [role, ink] = look.split(" ");
      return {
        type: "scatter", mode: "lines", fill: "toself", hoverinfo: "skip", line: { width: 0, simplify: false },
        fillcolor: token(`--${role}`), opacity: 0.2 + 0.2 * ink, ...paths[look],
      };
    });
    return [...filled, labels(pixel)];
  }

  // Names inside the communication that is wide enough to hold them, on the widest stretch of one colour.
  function labels(pixel) {
    const trace = { type: "scatter", mode: "text", hoverinfo: "skip", x: [], y: [], text: [], textfont: { size: 11.5, color: [] } };
    for (const row of rows) {
      if (!row.lane || row.lane.kind !== "comm" || row.height < 0.7) continue;
      for (const [from, to, role, i] of widest(row.lane.pieces, pixel)) {
        const { op, size, count } = row.lane;
        const name = count[i] > 1 ? `${count[i]} calls` : strings[op[i]];
        const long = count[i] > 1 ? name : `${name} ${strings[size[i]]}`;
        const text = [long, name].find((words) => words.length * 6.6 + 10 < (to - from) / pixel);
        if (!text) continue;
        trace.x.push((from + to) / 2 / divisor);
        trace.y.push(row.y + row.height / 2);
        trace.text.push(plain(text));
        trace.textfont.color.push(token(role === "exposed" ? "--on-exposed" : "--ink"));
      }
    }
    return trace;
  }

  // For every segment in view its widest stretch [start, end, role, segment]; slivers of another colour do not end one.
  function widest(pieces, pixel) {
    const best = new Map();
    let run = null;
    for (const [start, end, role, , i] of pieces) {
      const [from, to] = [Math.max(start, range[0]), Math.min(end, range[1])];
      if (from >= to) continue;
      if (run && run[3] === i && (run[2] === role || to - from < 3 * pixel)) run[1] = to;
      else run = [from, to, role, i];
      const known = best.get(i);
      if (!known || run[1] - run[0] > known[1] - known[0]) best.set(i, run);
    }
    return best.values();
  }

  // Plotly reads a little markup in texts; names of a trace are plain text.
  const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  function draw() {
    const { height, unit } = arrange();
    // Margins are known beforehand: Plotly's own search for them draws everything twice.
    const left = Math.ceil(7.4 * Math.max(...rows.map((row) => row.name.replace(/<[^>]*>/g, "").length))) + 12;
    const width = Math.max(200, (printing ? PAPER : chart.clientWidth) - left - 8);
    plot(chart, traces(width), {
      height: height * unit + 64,
      margin: { l: left, r: 8, t: 8, b: 52 },
      dragmode: "zoom",
      hovermode: false,
      xaxis: axis({
        automargin: false, range: range.map((time) => time / divisor), title: { text: `${given.unit} from the start` },
        minallowed: home[0] / divisor, maxallowed: home[1] / divisor,
      }),
      yaxis: axis({
        automargin: false, range: [height, -0.15], fixedrange: true, showgrid: false, ticks: "",
        tickvals: rows.map((row) => row.y + row.height / 2), ticktext: rows.map((row) => (row.lane ? plain(row.name) : row.name)),
      }),
      shapes: marker(),
    });
  }

  function marker() {
    if (!focus) return [];
    const { row, index } = focus;
    return [{
      type: "rect", x0: row.lane.start[index] / divisor, x1: row.lane.end[index] / divisor,
      y0: row.y - 0.05, y1: row.y + row.height + 0.05, line: { color: token("--ink"), width: 2 },
    }];
  }

  function look(from, to) {
    const least = Math.max(span / 1e6, 20);
    const wide = Math.min(Math.max(to - from, least), home[1] - home[0]);
    const start = Math.min(Math.max(from, home[0]), home[1] - wide);
    range = [start, start + wide];
    hide();
    draw();
  }

  function zoom(factor) {
    const middle = (range[0] + range[1]) / 2;
    const half = ((range[1] - range[0]) * factor) / 2;
    look(middle - half, middle + half);
  }

  // What lies under a pixel: row by position, segment by binary search, within three pixels.
  function find(event) {
    const full = chart._fullLayout;
    const box = chart.getBoundingClientRect();
    const time = full.xaxis.p2d(event.clientX - box.left - full.margin.l) * divisor;
    const y = full.yaxis.p2d(event.clientY - box.top - full.margin.t);
    const row = rows.find((each) => y >= each.y && y < each.y + each.height);
    if (!row || !row.lane || time < range[0] || time > range[1]) return null;
    const { start, end } = row.lane;
    const low = after(start, time);
    const slack = (3 * (range[1] - range[0])) / full.xaxis._length;
    if (low > 0 && time < end[low - 1]) return { row, index: low - 1 };
    const near = [low - 1, low].filter((i) => i >= 0 && i < start.length)
      .map((i) => [Math.max(start[i] - time, time - end[i]), i]).sort((a, b) => a[0] - b[0])[0];
    return near && near[0] < slack ? { row, index: near[1] } : null;
  }

  function show(hit, x, y) {
    const { lane, entry } = hit.row;
    const i = hit.index;
    const calls = lane.count[i];
    const facts = [["Rank", entry.name.replace("rank ", "")], ["Duration", strings[lane.time[i]]]];
    if (lane.kind === "comm") {
      facts.push(["Exposed", strings[lane.exposed[i]]], ["Size", strings[lane.size[i]]], ["Group", strings[lane.group[i]]]);
    }
    const title = lane.kind === "comm" ? strings[lane.op[i]] : lane.name;
    const list = element("dl");
    for (const [name, value] of facts) list.append(element("dt", name), element("dd", value));
    const label = strings[lane.label[i]];
    tip.replaceChildren(element("b", calls > 1 ? `${calls.toLocaleString("en")} kernels, ${title}` : title), list);
    if (label) tip.append(element("span", label, "path"));
    tip.hidden = false;
    const parent = tip.offsetParent.getBoundingClientRect();
    const left = Math.min(Math.max(x + 14, 8), document.documentElement.clientWidth - tip.offsetWidth - 8);
    const below = y + 18 + tip.offsetHeight < window.innerHeight;
    tip.style.left = `${left - parent.left}px`;
    tip.style.top = `${(below ? y + 18 : y - tip.offsetHeight - 14) - parent.top}px`;
  }

  function hide() {
    tip.hidden = true;
    if (focus) {
      focus = null;
      return true;
    }
    return false;
  }

  function reveal(row, index) {
    focus = { row, index };
    draw();
    const full = chart._fullLayout;
    const box = chart.getBoundingClientRect();
    const x = box.left + full.margin.l + full.xaxis.d2p(Math.max(row.lane.start[index], range[0]) / divisor);
    const y = box.top + full.margin.t + full.yaxis.d2p(row.y + row.height);
    show(focus, x, y);
  }

  // Arrow keys walk over the calls of all communication lanes in order of start.
  function step(by) {
    const calls = [];
    for (const row of rows) {
      if (row.lane && row.lane.kind === "comm") row.lane.start.forEach((start, index) => calls.push([start, row, index]));
    }
    if (!calls.length) return;
    calls.sort((a, b) => a[0] - b[0] || a[1].y - b[1].y);
    const now = focus ? calls.findIndex((call) => call[1].y === focus.row.y && call[2] === focus.index) : -1;
    const next = focus ? Math.min(Math.max(now + by, 0), calls.length - 1)
      : Math.max(calls.findIndex((call) => call[0] >= range[0]), 0);
    const [start, row, index] = calls[next];
    const end = row.lane.end[index];
    if (start < range[0] || end > range[1]) {
      const wide = Math.max(range[1] - range[0], (end - start) * 1.5);
      const from = Math.min(Math.max((start + end - wide) / 2, home[0]), Math.max(home[1] - wide, home[0]));
      range = [from, Math.min(from + wide, home[1])];
    }
    reveal(row, index);
  }

  const keys = {
    ArrowRight: () => step(1), ArrowLeft: () => step(-1),
    "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: () => look(...home), Escape: () => hide() && draw(),
  };
  drawn(draw);
  chart.addEventListener("pointermove", (event) => {
    if (event.buttons) return void (tip.hidden = true);
    const hit = find(event);
    if (hit) show(hit, event.clientX, event.clientY); else tip.hidden = true;
  });
  chart.addEventListener("pointerleave", () => { tip.hidden = true; });
  chart.addEventListener("keydown", (event) => {
    const action = !event.ctrlKey && !event.metaKey && !event.altKey && keys[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
  chart.on("plotly_relayout", (change) => {
    if ("xaxis.range[0]" in change) look(change["xaxis.range[0]"] * divisor, change["xaxis.range[1]"] * divisor);
    else if ("xaxis.range" in change) look(...change["xaxis.range"].map((time) => time * divisor));
  });
  chart.on("plotly_doubleclick", () => look(...home));
  byId("zoom-in").addEventListener("click", () => zoom(0.5));
  byId("zoom-out").addEventListener("click", () => zoom(2));
  byId("zoom-reset").addEventListener("click", () => look(...home));
  if (pick) pick.addEventListener("change", () => { hide(); draw(); });

  // For the table of collectives: what shows this call here, or null if the timeline does not hold it.
  return (rank, start, duration) => {
    const from = start - given.origin;
    const at = entries.findIndex((entry) => entry.rank === rank && from >= entry.start && from < entry.end);
    if (at < 0) return null;
    return () => {
      if (pick && pick.value !== "all") pick.value = String(at);
      const wide = Math.min(Math.max(duration * 3, (home[1] - home[0]) / 40), home[1] - home[0]);
      look(from + duration / 2 - wide / 2, from + duration / 2 + wide / 2);
      byId("timeline").scrollIntoView();
      chart.focus({ preventScroll: true });
      for (const row of rows) {
        if (row.entry !== entries[at] || !row.lane || row.lane.kind !== "comm") continue;
        const index = row.lane.start.findIndex((each, i) => each <= from && from < row.lane.end[i]);
        if (index >= 0) return void reveal(row, index);
      }
    };
  };
}
