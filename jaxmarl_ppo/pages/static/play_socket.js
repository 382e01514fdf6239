// The table is on the server that the page comes from.

function connect() {
  const here = new URL(location.href);
  const table = new URLSearchParams(here.hash.slice(1)).get("table");
  const address = new URL("ws", here.href.replace(/#.*/, ""));
  address.protocol = "ws:";
  if (table) address.searchParams.set("table", table);
  const socket = new WebSocket(address);
  game.send = (message) => socket.send(JSON.stringify(message));
  socket.addEventListener("message", (event) => {
    const message = JSON.parse(event.data);
    if (!message.table) return hear(message);
    here.hash = `table=${message.table}`;
    hear({ address: here.href });
    // Who comes first finds a game begun, and who joins chooses a side.
    if (!table) say({ do: "begin", seats: chosenSides() });
  });
  socket.addEventListener("close", () => {
    if (!byId("error").textContent) hear({ error: "The server has ended; this page is not connected any more." });
  });
}
