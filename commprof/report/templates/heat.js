// Heat maps of waiting: rows are ranks, columns steps or collectives; one scale per map, so that columns compare.
function startHeat() {
  const maps = data("waiting");
  if (!maps) return;
  const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  for (const map of maps) {
    const target = byId(`chart-heat-${map.name}`);
    const picks = [...document.querySelectorAll(`input[name="heat-${map.name}"]`)];
    const rows = map.rows.map((_, i) => i);
    const columns = map.columns.map((_, i) => i);
    const tall = Math.max(5, Math.min(22, 480 / rows.length));
    // Ranks have their number; a last row that stands for the rest says so when it is pointed at.
    const short = map.rows.map((name) => (/^\d+$/.test(name) ? name : "others"));
    const names = map.rows.map((name) => (/^\d+$/.test(name) ? `rank ${name}` : name));

    drawn(() => {
      const chosen = picks.findIndex((pick) => pick.checked);
      const layer = map.layers[Math.max(chosen, 0)];
      const seconds = layer.values.map((row) => row.map((ns) => (ns === null ? null : ns / 1e9)));
      const most = Math.max(...seconds.flat().filter((value) => value !== null), 1e-9);
      const every = Math.ceil(16 / tall);
      // Late ranks keep their names; of the others as many as there is room for.
      const fixed = [...map.late, rows.length - 1];
      const named = rows.filter((i) => fixed.includes(i) || (i % every === 0 && !fixed.some((at) => Math.abs(at - i) < every)));
      const scale = layer.scale.filter((_, i) => i !== 1 || rows.length * tall > 100);
      const wide = Math.max(1, Math.ceil((columns.length * 46) / Math.max(target.clientWidth - 90, 1)));
      const left = Math.ceil(7.2 * Math.max(...short.map((name) => name.length))) + 36;
      plot(target, [{
        type: "heatmap", x: columns, y: rows, z: seconds, zmin: 0, zmax: most, xgap: columns.length > 60 ? 0 : 1.5,
        ygap: tall > 8 ? 1.5 : 0, colorscale: [[0, token("--heat-0")], [0.5, token("--heat-1")], [1, token("--exposed")]],
        hoverongaps: false, text: layer.values.map((row, i) => row.map((_, j) => plain(`${names[i]}, ${map.details[j]}`))),
        hovertemplate: `%{text}<br>${layer.title}: %{z:.3s}s<extra></extra>`,
        colorbar: {
          thickness: 10, outlinewidth: 0, tickfont: { size: 12 }, len: 1, lenmode: "fraction",
          ypad: 0, tickmode: "array", tickvals: scale.map(([ns]) => ns / 1e9), ticktext: scale.map(([, text]) => text),
        },
      }], {
        height: rows.length * tall + 56, margin: { l: left, r: 8, t: 8, b: 44 },
        xaxis: axis({
          automargin: false, fixedrange: true, showgrid: false, tickangle: 0,
          title: { text: map.name === "step" ? "step" : "collectives in order of time" },
          tickvals: map.name === "step" ? columns.filter((i) => i % wide === 0) : [],
          ticktext: map.name === "step" ? map.columns.filter((_, i) => i % wide === 0).map(plain) : [],
        }),
        yaxis: axis({
          automargin: false, fixedrange: true, showgrid: false, ticks: "", autorange: "reversed", title: { text: "rank" },
          tickvals: named, ticktext: named.map((i) => (map.late.includes(i) ? `<b>${short[i]}</b>` : short[i])),
        }),
      });
    });
    picks.forEach((pick) => pick.addEventListener("change", redraw));
  }
}
