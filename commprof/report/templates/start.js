const showInTimeline = startTimeline();
startSplit();
startCalls(showInTimeline);
startTabs();
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
// Style sheets print in light colours; the charts take theirs again for the printer and back.
window.matchMedia("print").addEventListener("change", redraw);
