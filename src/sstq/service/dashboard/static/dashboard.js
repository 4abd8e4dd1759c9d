// The dashboard: it asks for the list of campaigns every few seconds, and for more only where something has changed.

import { Figure, compact, count, element, number } from "./charts.js";

const EVERY = 2000,
  EVERY_HIDDEN = 30000;
const MOST_BARS = 60,
  MOST_HOURS = 168,
  MOST_GROUPS = 8;
// Of a mechanism's JSON: what the certificate and the title say.
const INTERNAL = ["format", "version", "mechanism", "seed", "alignment", "inside", "threshold"];
const TOKEN = "sstq-token",
  LOOK = "sstq-look";
const at = (id) => document.getElementById(id);
// The page is at / or at /NAME, maybe behind a proxy's prefix: all addresses are relative to its folder.
const base = new URL(".", document.baseURI);
const address = (path) => new URL(path, base);

let chosen = decodeURIComponent(location.pathname.slice(base.pathname.length));
let shown = null; // the campaign whose figures are on the page
let timer = 0;

class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

async function ask(path) {
  const token = sessionStorage.getItem(TOKEN);
  const answer = await fetch(address(path), {
    headers: token ? { Authorization: `Bearer ${token}` } : {},
    cache: "no-cache",
    credentials: "omit",
  });
  if (!answer.ok) {
    const { detail } = await answer.json().catch(() => ({ detail: `The collector answered ${answer.status}.` }));
    throw new Refused(answer.status, detail);
  }
  return answer;
}

const read = async (path) => (await ask(path)).json();

// The list

const words = { open: "● open", scheduled: "◷ not open yet", closed: "■ closed" };

function showList(campaigns) {
  const list = at("campaigns");
  const links = new Map([...list.querySelectorAll("a")].map((link) => [link.dataset.name, link]));
  const items = campaigns.map(({ name, status, received }) => {
    const link = links.get(name) ?? campaignLink(name);
    const [state, messages] = link.querySelectorAll("span");
    if (name === chosen) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    setText(state, words[status]);
    state.className = `state ${status}`;
    setText(messages, `${count(received)} ${received === 1 ? "message" : "messages"}`);
    return link.parentElement;
  });
  // Only where it differs: replaced elements would lose the focus.
  if (items.length !== list.children.length || items.some((item, place) => item !== list.children[place]))
    list.replaceChildren(...items);
  at("campaigns-none").hidden = campaigns.length > 0;
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
    at("campaign").focus();
  });
  return element("li", {}, link).firstChild;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function setFacts(list, facts) {
  if (list.children.length !== facts.length)
    list.replaceChildren(...facts.map(() => element("div", {}, element("dt"), element("dd"))));
  facts.forEach(([term, value], place) => {
    const [name, text] = list.children[place].children;
    setText(name, term);
    setText(text, value);
  });
}

// A campaign

class Shown {
  constructor(name) {
    this.name = name;
    this.path = `v1/campaigns/${name}`;
    this.covered = -1;
    this.received = -1;
    this.figures = [];
  }

  figure(place, caption, image = false) {
    const made = new Figure(caption, image);
    at(place).append(made.root);
    this.figures.push(made);
    return made;
  }

  // The document as it is now: the terms of a campaign can change, and the browser's cache makes asking cheap.
  async written() {
    return (await ask(this.path)).text();
  }

  async open() {
    this.text = await this.written();
    this.document = JSON.parse(this.text);
    try {
      // As text: its integers are larger than JavaScript's numbers hold.
      this.certificate = await (await ask(`${this.path}/certificate`)).text();
      [, this.certified] = JSON.parse(this.certificate).interval;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.certificate = null;
      this.uncertified = error.message;
    }
    const { labels, group_labels: groupLabels, image_shape: shape, mechanism } = this.document;
    this.shape = shape;
    this.labels = labels;
    this.groups = mechanism.groups
      ? (groupLabels ?? Array.from({ length: mechanism.groups }, (_, group) => `Group ${group}`))
      : null;
  }

  build() {
    setText(at("name"), this.name);
    document.title = `${this.name} · sstq collector`;
    at("csv").href = address(`${this.path}/estimate?format=csv`).href;
    at("csv").download = `${this.name}.csv`;
    if (this.groups) {
      this.shares = this.figure("estimate-figures", "Share of each group");
      if (this.shape)
        this.pictures = this.groups
          .slice(0, MOST_GROUPS)
          .map((group) => this.figure("estimate-figures", `Mean of ${group}`, true));
      else this.bars = this.figure("estimate-figures", "Mean of each group");
    } else if (this.shape) this.pictures = [this.figure("estimate-figures", "Mean image", true)];
    else this.bars = this.figure("estimate-figures", "Mean of each coordinate");
    if (this.pictures) {
      const grid = element("div", { className: "images" }, ...this.pictures.map(({ root }) => root));
      at("estimate-figures").append(grid);
    }
    this.errors = this.figure("error-figures", "Standard error against messages");
    this.hours = this.figure("arrivals-figures", "Messages per hour");
    this.showMechanism();
    at("campaign").hidden = false;
  }

  remove() {
    this.figures.forEach((figure) => figure.remove());
    at("estimate-figures").replaceChildren();
  }

  showMechanism() {
    const {
      mechanism,
      message_bits: bits,
      digest,
      opens,
      closes,
      senders = "everybody",
      readers = "administrator",
      keys,
    } = this.document;
    const plain = Object.entries(mechanism).filter(
      ([name, value]) => !INTERNAL.includes(name) && typeof value !== "object",
    );
    setText(at("mechanism-text"), `${mechanism.mechanism}: each message has ${bits} bits.`);
    setFacts(at("mechanism"), [
      ...plain.map(([name, value]) => [
        name.replaceAll("_", " "),
        typeof value === "number" ? (Number.isInteger(value) ? count(value) : number(value)) : String(value),
      ]),
      ["opens", opens ? when(opens) : "at once"],
      ["closes", closes ? when(closes) : "no end set"],
      ["who may send", senders],
      ["who may read", readers],
      ["digest", `${digest.slice(0, 12)}…`],
      ["collector's key", `${keys[0].slice(0, 12)}…`],
    ]);
    at("certificate").textContent = this.certificate ?? this.uncertified;
    at("certificate-link").hidden = !this.certificate;
    at("certificate-link").href = address(`${this.path}/certificate`).href;
    at("certificate-link").download = `${this.name}-certificate.json`;
  }

  async update(status, all) {
    if (status.covered !== this.covered) {
      const [estimate, progress] = await Promise.all([read(`${this.path}/estimate`), read(`${this.path}/progress`)]);
      if (shown !== this) return;
      this.estimate = estimate;
      this.progress = withNewest(progress, estimate);
      this.covered = estimate.count;
      this.draw();
    }
    this.showCounts(status, all);
  }

  draw() {
    this.showEstimate();
    this.showError();
    this.showArrivals();
  }

  showCounts({ status, received, tokens_issued: issued, tokens_unspent: unspent }, all) {
    at("state").className = `state ${status}`;
    setText(at("state"), words[status]);
    const error = this.progress.measured.at(-1)?.[1];
    const facts = [
      ["Messages received", count(received)],
      ["In this estimate", count(this.covered)],
      ["Standard error", number(error)],
    ];
    if (issued) facts.push(["Tokens left", `${count(unspent)} of ${count(issued)}`]);
    facts.push(["ε per message", number(this.progress.epsilon)]);
    setFacts(at("facts"), facts);
    this.showPrivacy(all);
  }

  showPrivacy(all) {
    const { epsilon, privacy_loss: loss } = this.progress;
    const once = this.document.senders === "single-use";
    setText(
      at("privacy-text"),
      once
        ? `A token works once, so a participant sends one message and spends ε = ${number(epsilon)} in total.`
        : `A participant who sends one message spends ε = ${number(epsilon)} in total; who sends k messages spends k times that.`,
    );
    const facts = [
      ["ε of one message", number(epsilon)],
      this.certified
        ? ["certified in exact arithmetic", `≤ ${this.certified}`]
        : ["exact loss of one message", `≤ ${number(loss)}`],
    ];
    if (all.length > 1)
      facts.push([
        `one message to each of these ${all.length} campaigns`,
        this.total === undefined ? "…" : `ε = ${number(this.total)}`,
      ]);
    setFacts(at("privacy"), facts);
    if (all.length > 1 && this.summed !== all.map(({ name }) => name).join()) this.sum(all);
  }

  // Basic composition: what somebody spends who takes part in all campaigns.
  async sum(all) {
    this.summed = all.map(({ name }) => name).join();
    const documents = await Promise.all(all.map(({ name }) => read(`v1/campaigns/${name}`)));
    this.total = documents.reduce((sum, { mechanism }) => sum + mechanism.epsilon, 0);
    if (shown === this) this.showPrivacy(all);
  }

  showEstimate() {
    const { value, stderr, region, groups, note, count: covered } = this.estimate;
    at("note").hidden = !note;
    setText(at("note"), note);
    if (!covered) {
      setText(at("estimate-text"), "No messages yet. The estimate appears here as they arrive.");
      this.figures.forEach(({ root }) => {
        root.hidden = true;
      });
      this.errors.root.hidden = false;
      return;
    }
    this.figures.forEach(({ root }) => {
      root.hidden = false;
    });
    const size = this.document.mechanism.dim;
    const names = this.labels ?? Array.from({ length: size }, (_, place) => String(place));
    if (groups) {
      this.showGroups(groups, names);
      return;
    }
    if (this.shape) {
      setText(at("estimate-text"), `Mean of ${count(covered)} messages as an image. ${this.showPictures([value])}`);
      return;
    }
    const places = largest(value, stderr, MOST_BARS);
    const left =
      size > MOST_BARS
        ? ` The ${MOST_BARS} coordinates that stand out most are shown; all ${count(size)} are in the CSV.`
        : "";
    const width = region.half_width ?? stderr;
    setText(
      at("estimate-text"),
      `Mean of ${count(covered)} messages. The error bars hold all coordinates at once with probability ${100 * region.level} %.${left}`,
    );
    const picked = (numbers) => places.map((place) => numbers[place]);
    this.bars.bars(picked(names), [{ label: "Mean", values: picked(value), errors: picked(width) }], "mean");
    const top = places.reduce((best, place) => (value[place] > value[best] ? place : best), places[0]);
    this.bars.describe(
      `${places.length} bars; the highest is ${names[top]} with ${number(value[top])} ± ${number(width[top])}. The table below has all bars.`,
    );
  }

  showGroups({ shares, shares_stderr: sharesError, means, means_stderr: meansError }, names) {
    const groups = this.groups;
    setText(
      at("estimate-text"),
      `Shares and means of ${count(groups.length)} private groups from ${count(this.estimate.count)} messages. Error bars are one standard error.${groups.length > MOST_GROUPS ? ` ${MOST_GROUPS} groups are shown; all are in the CSV.` : ""}`,
    );
    this.shares.bars(groups, [{ label: "Share", values: shares, errors: sharesError }], "share of people");
    this.shares.describe(
      groups
        .map((group, place) => `${group}: ${number(shares[place])}`)
        .slice(0, MOST_GROUPS)
        .join(", "),
    );
    if (this.shape) {
      at("estimate-text").append(` ${this.showPictures(means.slice(0, MOST_GROUPS))}`);
      return;
    }
    const most = groups
      .map((_, group) => group)
      .sort((one, other) => shares[other] - shares[one])
      .slice(0, MOST_GROUPS)
      .sort((one, other) => one - other);
    const places = largest(means[most[0]], meansError[most[0]], Math.max(4, Math.floor(MOST_BARS / most.length)));
    this.bars.bars(
      places.map((place) => names[place]),
      most.map((group) => ({
        label: groups[group],
        values: places.map((place) => means[group][place]),
        errors: places.map((place) => meansError[group][place]),
      })),
      "mean",
    );
    this.bars.describe(
      `${places.length} coordinates of ${most.length} groups, side by side. The table below has all bars.`,
    );
  }

  showPictures(images) {
    const known = images.flat().filter((value) => value !== null);
    // A loop: an image may have more values than a function takes arguments.
    const [low, high] = known.reduce(
      ([least, most], value) => [Math.min(least, value), Math.max(most, value)],
      [Infinity, -Infinity],
    );
    images.forEach((values, place) => {
      this.pictures[place].picture(values, this.shape, low, high);
      this.pictures[place].describe(
        `${this.shape[1]} by ${this.shape[0]} pixels with values from ${number(low)} to ${number(high)}.`,
      );
    });
    return `Black is ${number(low)} and white is ${number(high)}.`;
  }

  showError() {
    const { measured, predicted } = this.progress;
    const [last, then] = [measured.at(-1), predicted.at(-1)];
    const parts = last ? [`Now ${number(last[1])} with ${count(last[0])} messages.`] : [];
    parts.push(`With ${compact(then[0])} messages, ${number(then[1])} is predicted.`, ...this.atClosing());
    setText(
      at("error-text"),
      `${parts.join(" ")} The prediction is for people all alike, with vectors of the largest norm; the measured error includes how people differ.`,
    );
    this.errors.error(this.progress);
    this.errors.describe(`${parts.join(" ")} The table below has all points.`);
  }

  // At the pace of the last day, if there is a closing time.
  atClosing() {
    const { arrivals, predicted, bias } = this.progress;
    const now = Date.now() / 1000,
      closes = Date.parse(this.document.closes) / 1000;
    if (!(closes > now) || !arrivals.length) return [];
    const since = Math.max(arrivals[0][0], now - 86400);
    const recent = arrivals.filter(([hour]) => hour >= since).reduce((sum, [, messages]) => sum + messages, 0);
    const later = this.covered + (recent / Math.max(now - since, 3600)) * (closes - now);
    const [first, then] = predicted[0];
    const error = Math.sqrt(bias * bias + ((then * then - bias * bias) * first) / later);
    return [`At the pace of the last day there will be ${compact(later)} at closing: ${number(error)}.`];
  }

  showArrivals() {
    const hours = filled(this.progress.arrivals);
    const total = hours.reduce((sum, [, messages]) => sum + messages, 0);
    setText(
      at("arrivals-text"),
      hours.length
        ? `${count(total)} messages in ${count(hours.length)} ${hours.length === 1 ? "hour" : "hours"}. No finer time is stored.`
        : "None yet. No time finer than the hour is stored.",
    );
    this.hours.arrivals(hours);
    this.hours.describe(`${at("arrivals-text").textContent} The table below has every hour.`);
  }
}

const when = (time) => `${time.slice(0, 16).replace("T", " ")} UTC`;

// The places whose values are farthest from zero in units of their errors, in their own order.
function largest(values, errors, most) {
  const places = values.map((_, place) => place);
  if (places.length <= most) return places;
  const weight = (place) => Math.abs(values[place] ?? 0) / (errors[place] || 1);
  return places
    .sort((one, other) => weight(other) - weight(one))
    .slice(0, most)
    .sort((one, other) => one - other);
}

// The history has a point now and then; the newest estimate is the last one.
function withNewest(progress, { count: covered, stderr }) {
  const last = progress.measured.at(-1)?.[0] ?? 0;
  if (covered <= last || !stderr || stderr.includes(null)) return progress;
  const error = Math.sqrt(stderr.reduce((sum, one) => sum + one * one, 0));
  return { ...progress, measured: [...progress.measured, [covered, error]] };
}

// Hours without messages are not stored.
function filled(arrivals) {
  if (!arrivals.length) return [];
  const known = new Map(arrivals),
    last = arrivals.at(-1)[0];
  const first = Math.max(arrivals[0][0], last - 3600 * (MOST_HOURS - 1));
  return Array.from({ length: (last - first) / 3600 + 1 }, (_, place) => [
    first + 3600 * place,
    known.get(first + 3600 * place) ?? 0,
  ]);
}

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
    showList(campaigns);
    const status = campaigns.find(({ name }) => name === chosen);
    if (status) await show(status, campaigns);
    else hide();
    if (status || !chosen) setText(at("token-problem"), "");
    else
      askForToken(
        `The campaign ${chosen} needs ${sessionStorage.getItem(TOKEN) ? "another" : "a"} token, or does not exist.`,
      );
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
    const next = new Shown(status.name);
    await next.open();
    if (chosen !== next.name) return;
    shown?.remove();
    shown = next;
    next.build();
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
  setText(at("token-button"), sessionStorage.getItem(TOKEN) ? "Change the token" : "Enter a token");
}

at("token-button").addEventListener("click", () => openTokenForm(at("token-form").hidden));
at("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, at("token").value.trim());
  at("token").value = "";
  setText(at("token-problem"), "");
  openTokenForm(false);
  nameTokenButton();
  refresh();
});
at("token-forget").addEventListener("click", () => {
  sessionStorage.removeItem(TOKEN);
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
  if (!sessionStorage.getItem(TOKEN)) return;
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
  if (shown?.progress) shown.draw();
}

at("theme-button").addEventListener("click", () => {
  localStorage.setItem(LOOK, isDark() ? "light" : "dark");
  applyLook();
});
systemDark.addEventListener("change", applyLook);
addEventListener("popstate", () => choose(decodeURIComponent(location.pathname.slice(base.pathname.length))));
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) refresh();
});

applyLook();
nameTokenButton();
refresh();
