// The page that shows episodes and nothing else.

async function start() {
  const data = await readData();
  setUpTheme(byId("theme"));
  showFacts(data);
  startReplay(data, document);
}

start();
