// The split of every rank: one figure, one variant (mean or a step) shown at a time.
function startSplit() {
  const given = data("split");
  if (!given) return;
  const target = byId("chart-split");
  const pick = byId("split-pick");
  const value = given.horizontal ? "x" : "y";

  drawn(() => {
    const variant = given.variants[pick ? Number(pick.value) : 0];
    const figure = coloured(given.figure);
    const shape = figure.layout;
    figure.data.forEach((trace, i) => {
      trace[value] = variant.values[i];
      trace.customdata = variant.texts[i];
      trace.showlegend = false;
    });
    for (const name of ["xaxis", "yaxis"]) shape[name] = axis(shape[name]);
    if (!given.horizontal) {
      // As many names under the bars as there is room for.
      const every = Math.ceil((shape.xaxis.tickvals.length * 62) / Math.max(target.clientWidth - 60, 1));
      for (const key of ["tickvals", "ticktext"]) shape.xaxis[key] = shape.xaxis[key].filter((_, i) => i % every === 0);
    }
    // One scale for all variants, so that steps compare.
    shape[`${value}axis`].range = [0, given.longest * 1.01];
    plot(target, figure.data, { ...shape, showlegend: false });
  });
  if (pick) pick.addEventListener("change", redraw);
}
