const showInTimeline = startTimeline();
startSplit();
startCalls(showInTimeline);
startTabs();
followPage();
