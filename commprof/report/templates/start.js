const showInTimeline = startTimeline();
startSplit();
startHeat();
startCalls(showInTimeline);
startTabs();
followPage();
