// What every page does in the browser: local times, the choice of colours, forms sent once, and copies of commands.

const absolute = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const relative = new Intl.RelativeTimeFormat(undefined, { numeric: "auto" });
const units = [["day", 86_400], ["hour", 3_600], ["minute", 60], ["second", 1]];

function ago(moment) {
  const seconds = (moment - Date.now()) / 1000;
  const [unit, size] = units.find(([, each]) => Math.abs(seconds) >= each) ?? ["second", 1];
  return relative.format(Math.round(seconds / size), unit);
}

// Shows the times of a part of the page in the browser's zone, with UTC on hover.
function localize(part) {
  for (const time of part.querySelectorAll("time:not([title])")) {
    const moment = new Date(time.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    time.title = time.textContent;
    time.textContent = "relative" in time.dataset ? ago(moment) : absolute.format(moment);
  }
}

function toggleTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  document.cookie = `confplane_theme=${root.dataset.theme}; path=/console; max-age=31536000; samesite=lax`;
}

async function copy(button) {
  await navigator.clipboard.writeText(button.parentElement.querySelector("pre").textContent);
  const word = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = word; }, 1500);
}

// Ends a search that goes on by itself: its next step is not asked for, or not shown.
function stop(button) {
  const row = button?.closest("tr");
  if (!row) return;
  htmx.trigger(row, "htmx:abort");
  row.removeAttribute("hx-get");
  row.querySelector("[role=status]").textContent += " stopped";
  button.remove();
}

// Puts the text of a dropped file into its field. Files above the longest form are left to the service's refusal.
async function take(event) {
  const field = event.target instanceof Element ? event.target.closest("textarea[data-drop]") : null;
  const [file] = event.dataTransfer?.files ?? [];
  if (!field || !file) return;
  event.preventDefault();
  field.value = await file.text();
}

// Sends a form once until its answer is shown: a second click must not repeat a step, such as the rotation of a token.
function sendOnce(event) {
  const form = event.target;
  if (form.method !== "post" || event.defaultPrevented) return;
  if ("sent" in form.dataset) {
    event.preventDefault();
    return;
  }
  form.dataset.sent = "";
  // Without an answer the page stays, and its form can be sent again.
  setTimeout(() => { delete form.dataset.sent; }, 10_000);
}

document.addEventListener("submit", sendOnce);
addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
});
document.addEventListener("dragover", (event) => {
  if (event.target instanceof Element && event.target.closest("textarea[data-drop]")) event.preventDefault();
});
document.addEventListener("drop", take);
document.addEventListener("click", (event) => {
  const target = event.target instanceof Element ? event.target : null;
  if (target?.closest("[data-theme-toggle]")) toggleTheme();
  const button = target?.closest("[data-copy]");
  if (button) copy(button);
  stop(target?.closest("[data-stop]"));
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(target)) menu.open = false;
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});
for (const shown of ["htmx:afterSettle", "confplane:shown"]) document.addEventListener(shown, () => localize(document));
localize(document);
