// The collectives table (sorted and filtered here) and the tabs of the exposure tables.
const PAGE = 50;

function startCalls(showInTimeline) {
  const given = data("calls");
  if (!given) return;
  const columns = given.columns;
  const table = byId("calls");
  const body = table.tBodies[0];
  const filter = byId("calls-filter");
  const more = byId("calls-more");
  const heads = [...table.tHead.querySelectorAll("button")];
  const all = byId("calls-all");
  const visible = (column) => !column.more || (all && all.checked);
  const rows = columns[0].texts.map((_, row) => row);
  const words = rows.map((row) => columns.map((column) => column.texts[row]).join(" ").toLowerCase());
  const at = (key) => columns.findIndex((column) => column.key === key);
  let sorted = at("exposed_ns");
  let falling = true;
  let shown = PAGE;

  // Rows without a value stay at the end whichever way the column is sorted.
  function compare(a, b) {
    const column = columns[sorted];
    const sign = falling ? -1 : 1;
    if (!column.number) return sign * column.texts[a].localeCompare(column.texts[b], "en", { numeric: true }) || a - b;
    const [left, right] = [column.values[a], column.values[b]];
    if (left === null || right === null) return (left === null) - (right === null) || a - b;
    return sign * (left - right) || a - b;
  }

  function line(row) {
    const tr = element("tr");
    for (const column of columns.filter(visible)) tr.append(element("td", column.texts[row], `col-${column.key}${column.number ? " n" : ""}`));
    const last = element("td");
    const show = showInTimeline(columns[at("rank")].values[row], columns[at("start_ns")].values[row],
      columns[at("duration_ns")].values[row]);
    if (show) {
      const button = element("button", "Timeline");
      button.type = "button";
      button.addEventListener("click", show);
      last.append(button);
    }
    tr.append(last);
    return tr;
  }

  function draw() {
    const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const kept = rows.filter((row) => wanted.every((word) => words[row].includes(word))).sort(compare);
    body.replaceChildren(...kept.slice(0, shown).map(line));
    byId("calls-count").textContent =
      `${kept.length.toLocaleString("en")} ${kept.length === 1 ? "call" : "calls"}` +
      (kept.length > shown ? `, ${shown} shown` : "");
    more.hidden = kept.length <= shown;
  }

  heads.forEach((head) => head.addEventListener("click", () => {
    const column = Number(head.dataset.column);
    falling = column === sorted ? !falling : columns[column].number;
    sorted = column;
    heads.forEach((other) => other.closest("th").removeAttribute("aria-sort"));
    head.closest("th").setAttribute("aria-sort", falling ? "descending" : "ascending");
    draw();
  }));
  if (all) {
    all.addEventListener("change", () => {
      table.classList.toggle("all", all.checked);
      heads.forEach((head, i) => { head.closest("th").hidden = !visible(columns[i]); });
      draw();
    });
  }
  filter.addEventListener("input", () => { shown = PAGE; draw(); });
  more.addEventListener("click", () => { shown += 4 * PAGE; draw(); });
  draw();
}

function startTabs() {
  const pick = byId("exposure-pick");
  if (!pick) return;
  const tables = [...document.querySelectorAll(".exposure-table")];
  const show = () => {
    const chosen = pick.querySelector("input:checked").value;
    tables.forEach((table) => { table.hidden = table.dataset.tab !== chosen; });
  };
  pick.addEventListener("change", show);
  show();
}
