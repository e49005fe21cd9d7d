// Plotly travels packed: a third of its size. Unpacking takes some hundredths of a second; the text is on screen by then.
async function unpackPlotly() {
  const packed = byId("plotly-packed");
  const text = atob(packed.textContent);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  // The policy of the page knows the hash of this script; it runs as soon as it is in the page.
  const script = element("script", await new Response(stream).text());
  document.head.append(script);
  packed.remove();
}

async function start() {
  startTabs();
  let showInTimeline = () => null;
  let drawn = true;
  try {
    await unpackPlotly();
  } catch {
    drawn = false;
    const said = "This browser is too old to unpack the charts; the tables hold their numbers.";
    document.querySelectorAll(".chart").forEach((chart) => chart.replaceChildren(element("p", said, "note")));
  }
  if (drawn) {
    showInTimeline = startTimeline();
    startSplit();
    startHeat();
    followPage();
  }
  startCalls(showInTimeline);
  document.documentElement.dataset.charts = drawn ? "drawn" : "none";
}
start();
