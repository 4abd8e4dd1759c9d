// The dashboard: it asks for the list of campaigns every few seconds, and for more only where something has changed.

import { ShownCampaign, words } from "./campaign.js";
import { Refused, address, ask, base, forgetToken, nameInAddress, read, token, useToken } from "./collector.js";
import { at, count, element, setText } from "./page.js";
import { ShownStudy } from "./study.js";

const EVERY = 2000,
  EVERY_HIDDEN = 30000;
const LOOK = "sstq-look";
const FEW_CAMPAIGNS = 8;

let chosen = nameInAddress();
let shown = null; // the campaign whose figures are on the page
let timer = 0;
let listed = []; // all campaigns, found or not
let revealed = ""; // the campaign to which the list was scrolled
let focusOn = ""; // the campaign that somebody chose and that is not shown yet

// The list

function showList(campaigns) {
  const list = at("campaigns");
  const wanted = at("search").value.trim().toLowerCase();
  at("search").hidden = campaigns.length <= FEW_CAMPAIGNS && !wanted;
  const found = campaigns.filter(({ name }) => name.includes(wanted));
  at("campaigns-missed").hidden = found.length > 0 || !campaigns.length;
  const links = new Map([...list.querySelectorAll("a")].map((link) => [link.dataset.name, link]));
  const items = found.map(({ name, status, received, study }) => {
    const known = study?.state ?? status, [one, many] = study ? ["person", "people"] : ["message", "messages"];
    const link = links.get(name) ?? campaignLink(name);
    const [state, messages] = link.querySelectorAll("span");
    if (name === chosen) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    setText(state, words[known]);
    state.className = `state ${known}`;
    setText(messages, `${count(received)} ${received === 1 ? one : many}`);
    return link.parentElement;
  });
  // Only where it differs: replaced elements would lose the focus.
  if (items.length !== list.children.length || items.some((item, place) => item !== list.children[place]))
    list.replaceChildren(...items);
  const current = list.querySelector("a[aria-current]");
  if (current && revealed !== chosen) {
    revealed = chosen;
    reveal(current, list);
  }
  at("campaigns-none").hidden = campaigns.length > 0;
}

// The list is scrolled, if it must be, and not the page.
function reveal(link, list) {
  const own = link.getBoundingClientRect();
  const seen = list.getBoundingClientRect();
  const middle = (seen.height - own.height) / 2;
  if (own.top < seen.top || own.bottom > seen.bottom) list.scrollTop += own.top - seen.top - middle;
}

function campaignLink(name) {
  const link = element(
    "a",
    { href: address(name).href },
    element("div", { className: "row" }, element("strong", { textContent: name }), element("span")),
    element("span", { className: "count" }),
  );
  link.dataset.name = name;
  link.addEventListener("click", (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    history.pushState(null, "", link.href);
    choose(name);
    focusOn = name; // again once it is shown: what is hidden cannot have the focus
    at("campaign").focus();
  });
  return element("li", {}, link).firstChild;
}

at("search").addEventListener("input", () => showList(listed));

// What goes on

function choose(name) {
  chosen = name;
  refresh();
}

async function refresh() {
  clearTimeout(timer);
  const mine = (refresh.latest = Symbol("refresh"));
  try {
    const { campaigns } = await read("v1/campaigns");
    if (mine !== refresh.latest) return;
    if (!chosen && campaigns.length) chosen = campaigns[0].name;
    listed = campaigns;
    showList(campaigns);
    const status = campaigns.find(({ name }) => name === chosen);
    if (status) await show(status, campaigns);
    else hide();
    if (status || !chosen) setText(at("token-problem"), "");
    else askForToken(`The campaign ${chosen} needs ${token() ? "another" : "a"} token, or does not exist.`);
    setText(at("connection"), "Live: updates every 2 seconds");
    at("connection").classList.remove("lost");
  } catch (error) {
    if (mine !== refresh.latest) return;
    if (error instanceof Refused && [401, 403].includes(error.status)) {
      setText(at("connection"), "A token is needed");
      askForToken(error.message);
    } else {
      setText(
        at("connection"),
        error instanceof Refused ? error.message : "The collector does not answer. What is shown may be old.",
      );
      at("connection").classList.add("lost");
    }
  }
  if (mine === refresh.latest) timer = setTimeout(refresh, document.hidden ? EVERY_HIDDEN : EVERY);
}

async function show(status, campaigns) {
  if (shown?.name !== status.name || shown.text !== (await shown.written())) {
    const next = status.study ? new ShownStudy(status.name) : new ShownCampaign(status.name);
    await next.open();
    if (chosen !== next.name) return;
    shown?.remove();
    shown = next;
    next.build();
    if (focusOn === next.name) at("campaign").focus();
    focusOn = "";
  }
  await shown.update(status, campaigns);
}

function hide() {
  shown?.remove();
  shown = null;
  at("campaign").hidden = true;
  document.title = "sstq collector";
}

// The token

function openTokenForm(open) {
  at("token-form").hidden = !open;
  at("token-button").setAttribute("aria-expanded", String(open));
  if (open) at("token").focus();
}

// Once per problem: who has closed the form is not asked again every two seconds.
function askForToken(problem) {
  if (at("token-problem").textContent === problem) return;
  setText(at("token-problem"), problem);
  openTokenForm(true);
}

function nameTokenButton() {
  setText(at("token-button"), token() ? "Change the token" : "Enter a token");
}

at("token-button").addEventListener("click", () => openTokenForm(at("token-form").hidden));
at("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useToken(at("token").value.trim());
  at("token").value = "";
  setText(at("token-problem"), "");
  openTokenForm(false);
  nameTokenButton();
  refresh();
});
at("token-forget").addEventListener("click", () => {
  forgetToken();
  openTokenForm(false);
  at("token-button").focus();
  nameTokenButton();
  chosen = "";
  hide();
  history.replaceState(null, "", base);
  refresh();
});

// A link cannot carry the token: the file is fetched, and saved from memory.
at("csv").addEventListener("click", async (event) => {
  if (!token()) return;
  event.preventDefault();
  const name = at("csv").download;
  const url = URL.createObjectURL(await (await ask(`${shown.path}/estimate?format=csv`)).blob());
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
});

// The look: as the system has it, until somebody chooses.

const systemDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (localStorage.getItem(LOOK) ?? (systemDark.matches ? "dark" : "light")) === "dark";

function applyLook() {
  document.documentElement.dataset.look = isDark() ? "dark" : "light";
  setText(at("theme-button"), isDark() ? "Light look" : "Dark look");
  if (shown?.covered >= 0) shown.draw();
}

at("theme-button").addEventListener("click", () => {
  localStorage.setItem(LOOK, isDark() ? "light" : "dark");
  applyLook();
});
systemDark.addEventListener("change", applyLook);
addEventListener("popstate", () => choose(nameInAddress()));
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) refresh();
});

applyLook();
nameTokenButton();
refresh();
