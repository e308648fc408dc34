// The live tail of a page: while the tab is shown and the tail is not paused, changes are put in as they come.

const tail = document.querySelector("[data-live]");
const words = tail.querySelector("[role=status]");
const button = tail.querySelector("button");
let source = null;
let last = "";
let paused = false;
let over = false;
let timer = null;
let meanwhile = null;

function say(text) {
  if (words.textContent !== text) words.textContent = text;
}

// Reads a part of the page again from the service, at most twice a second.
function refresh() {
  timer ??= setTimeout(() => {
    timer = null;
    const part = document.querySelector("[data-live-part]");
    if (part) htmx.trigger(part, "refresh");
  }, 500);
}

// What comes while a part is read may be missing in it, and is put in once more.
document.addEventListener("htmx:beforeRequest", ({ target }) => {
  if ("livePart" in target.dataset) meanwhile = [];
});
document.addEventListener("htmx:afterRequest", ({ target }) => {
  if (!("livePart" in target.dataset)) return;
  const missed = meanwhile ?? [];
  meanwhile = null;
  missed.forEach(put);
});

function show(change) {
  meanwhile?.push(change);
  if ("refresh" in tail.dataset) refresh();
  put(change);
}

function put({ id, html }) {
  const place = document.querySelector("[data-live-into]");
  const name = `change-${id}`;
  if (!place) refresh();
  if (!place || document.getElementById(name)) return;
  const made = document.createElement("template");
  made.innerHTML = html;
  const shown = made.content.firstElementChild;
  shown.id = name;
  shown.classList.add("new");
  place.prepend(shown);
  place.closest("[hidden]")?.removeAttribute("hidden");
  while (place.children.length > Number(place.dataset.liveInto)) place.lastElementChild.remove();
  document.dispatchEvent(new CustomEvent("confplane:shown"));
}

// Keeps the position. Some events have none.
function note(event) {
  last = event.lastEventId || last;
}

function close(text) {
  source?.close();
  source = null;
  say(text);
}

function end(text) {
  over = true;
  button.hidden = true;
  close(text);
}

function connect() {
  if (source || paused || over || document.hidden) return;
  const url = new URL(tail.dataset.live, location.href);
  if (last) url.searchParams.set("after", last);
  source = new EventSource(url);
  source.addEventListener("open", () => say("Live"));
  source.addEventListener("error", () => {
    if (source?.readyState === EventSource.CLOSED) end("No longer live. Open the page again.");
    else say("Connecting again …");
  });
  source.addEventListener("begin", () => { if (!last) refresh(); });
  source.addEventListener("change", (event) => { note(event); show(JSON.parse(event.data)); });
  source.addEventListener("reset", (event) => { note(event); refresh(); });
  source.addEventListener("ended", () => end("The session has ended. Sign in again."));
  source.addEventListener("refused", (event) => end(JSON.parse(event.data)));
}

button.addEventListener("click", () => {
  paused = !paused;
  button.textContent = paused ? "Resume" : "Pause";
  if (paused) close("Paused");
  else connect();
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden && source) close("");
  else connect();
});
tail.hidden = false;
connect();
