// Refreshes the page, and shows times in the time zone of the reader. The page works without it.
"use strict";

// How often the page is refreshed, in milliseconds.
const EVERY = 10_000;

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const formats = {
  date: new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" }),
  clock: new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" }),
};

// Shows times in the reader's zone.
function localise(part) {
  for (const time of part.querySelectorAll("time[data-shown]")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    const format = formats[time.dataset.shown];
    if (format) time.textContent = format.format(at);
    time.title = `${formats.date.format(at)} (${time.dateTime})`;
  }
}

// Adds a box to the head of a table that selects all of its rows.
function selectAll(part) {
  const boxes = [...part.querySelectorAll("input[name=number][type=checkbox]")];
  const head = boxes[1]?.closest("table").querySelector("th");
  if (!head) return;
  const all = document.createElement("input");
  all.type = "checkbox";
  all.setAttribute("aria-label", "Select all on this page");
  all.addEventListener("change", () => boxes.forEach((box) => { box.checked = all.checked; }));
  head.replaceChildren(all);
}

// Returns true while the reader is in the middle of something that a refresh would undo.
function isBusy(main) {
  const field = document.activeElement;
  const isTyping = main.contains(field) && field.matches("input, select, textarea");
  return document.hidden || isTyping || main.querySelector("input:checked, figure details[open]") !== null;
}

// Asks for the page again, and replaces its main part. Returns false if there is no such page.
async function refresh(main) {
  const address = new URL(location.href);
  // The report of the last form is shown once.
  address.searchParams.delete("done");
  const response = await fetch(address, { credentials: "same-origin" });
  if (!response.ok) return false;
  const text = await response.text();
  const fresh = new DOMParser().parseFromString(text, "text/html").querySelector("main[data-live]");
  if (fresh === null) return false;
  const isFiltering = main.querySelector(".filters[open]") && !fresh.querySelector(".filters[open]");
  if (isBusy(main) || isFiltering) return true;
  // The button that has the focus keeps it.
  const name = document.activeElement?.getAttribute("aria-label");
  main.replaceChildren(...document.importNode(fresh, true).childNodes);
  prepare(main);
  if (name && document.activeElement === document.body) {
    main.querySelector(`[aria-label="${CSS.escape(name)}"]`)?.focus({ preventScroll: true });
  }
  return true;
}

// Fills in the reader's zone where a form has none of the reader's choice.
function fillZones(part) {
  for (const field of part.querySelectorAll("input[data-zone]")) field.value = zone;
}

function prepare(main) {
  localise(main);
  fillZones(main);
  selectAll(main);
}

// Adds the button that switches the refreshing, which lasts until the window is closed.
function live(main) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "live plain";
  button.textContent = "Live";
  const show = (isOn) => {
    button.setAttribute("aria-pressed", String(isOn));
    button.title = isOn ? "The page is refreshed every 10 seconds" : "The page is not refreshed";
  };
  show(sessionStorage.getItem("live") !== "off");
  button.addEventListener("click", () => {
    const isOn = button.getAttribute("aria-pressed") !== "true";
    sessionStorage.setItem("live", isOn ? "on" : "off");
    show(isOn);
  });
  document.querySelector(".search")?.after(button);
  setInterval(async () => {
    if (button.getAttribute("aria-pressed") !== "true" || isBusy(main)) return;
    const isFresh = await refresh(main).catch(() => false);
    button.textContent = isFresh ? "Live" : "No response";
  }, EVERY);
}

const main = document.querySelector("main");
prepare(document.body);
const foot = document.querySelector("#zone");
if (foot) foot.textContent = `Times are in ${zone}.`;
if (main?.hasAttribute("data-live")) live(main);
