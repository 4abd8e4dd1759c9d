// A poll whose answers never leave the page: each visitor sends one private message of a few bits.

import { Client, Ledger } from "./sstq.js";

const CAMPAIGN = new URL("../demo-poll", document.baseURI).href;
const SENDER = new URL("sender.json", document.baseURI);
const ESTIMATE = new URL("../v1/campaigns/demo-poll/estimate", document.baseURI);
const ANSWERS = { "strongly disagree": -1, disagree: -0.5, "no opinion": 0, agree: 0.5, "strongly agree": 1 };
// The most that this page lets a campaign ask for per message, and what a visitor may spend here in all: two messages.
const MOST_EPSILON = 2, BUDGET = 4;
// A visitor looks at the page meanwhile: give up soon.
const PATIENCE_SECONDS = 30, REQUEST_SECONDS = 20;
const POLL_SECONDS = 1, NORMAL_95 = 1.96;
const SIMULATED = 1000;
// The chances of the five answers of a simulated visitor, question by question.
const CHANCES = [
  [0.1, 0.2, 0.2, 0.3, 0.2],
  [0.05, 0.1, 0.15, 0.4, 0.3],
  [0.15, 0.25, 0.3, 0.2, 0.1],
  [0.05, 0.15, 0.2, 0.3, 0.3],
  [0.4, 0.25, 0.15, 0.1, 0.1],
];

const at = (id) => document.getElementById(id);
const whole = new Intl.NumberFormat("en");
const signed = (value) => (value > 0 ? "+" : value < 0 ? "−" : "") + Math.abs(value).toFixed(2);
const simulated = { count: 0, sums: [0, 0, 0, 0, 0] };
let newest = null;

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function drawn(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text; // a screen reader would read it again
}

function showProblem(text) {
  setText(at("problem"), text.charAt(0).toUpperCase() + text.slice(1));
  at("problem").hidden = false;
}

function complain(error) {
  console.warn(error);
  showProblem(`${error.message}.`);
}

// The questions

function showQuestions(labels) {
  const questions = labels.map((label, question) => {
    const choices = Object.entries(ANSWERS).map(([answer, value]) =>
      element("input", { type: "radio", name: `q${question}`, value, ariaLabel: answer, title: answer }),
    );
    return element("fieldset", {}, element("legend", {}, label), element("div", { className: "choices" }, ...choices));
  });
  at("questions").replaceChildren(...questions);
}

const answersOf = (form, labels) => labels.map((_, question) => Number(new FormData(form).get(`q${question}`) ?? NaN));

// What leaves the page

/** Send one message and tell about the very request that the browser makes. */
async function sendAndShow(client, vector) {
  const { mechanism } = client.campaign, message = mechanism.encode(vector), ask = window.fetch;
  let request;
  window.fetch = (url, options) => {
    if (options.method === "POST") request = { url: new URL(url), ...options };
    return ask(url, options);
  };
  try {
    await client.sendMessages([message]);
  } finally {
    window.fetch = ask;
    if (request) showSent(mechanism, vector, message, request);
  }
}

const binary = (value, bits) => value.toString(2).padStart(bits, "0");
const bitsOf = ({ fields }, message) => fields.map(({ bits }, i) => binary(message[i], bits));

function showSent(mechanism, vector, message, { url, method, headers, body }) {
  const texts = bitsOf(mechanism, message), [row, frame] = message;
  const cells = texts.flatMap((text, field) =>
    Array.from(text, (bit) => element("span", { className: `field${field}` }, bit)),
  );
  at("bits").replaceChildren(...cells);
  at("bits").ariaLabel = mechanism.fields.map(({ name }, i) => `${name}: ${texts[i].split("").join(" ")}`).join("; ");
  const meaning = [
    `signed row ${row % 2 ? "−" : "+"}${row >> 1} of ${mechanism.fields[0].limit / 2} public directions`,
    `frame ${whole.format(frame ?? 0)} of ${whole.format(mechanism.fields[1]?.limit ?? 1)}: which set of directions, drawn at random`,
  ];
  const facts = mechanism.fields.map(({ name, bits }, i) => {
    const term = element("dt", { className: `field${i}` }, `${name}, ${bits} bits`);
    return element("div", {}, term, element("dd", {}, meaning[i]));
  });
  at("fields").replaceChildren(...facts);
  const bytes = Array.from(body, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
  const head = [`${method} ${url.pathname}`, ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`)];
  at("request").textContent = [...head, "", `${bytes}   (${body.length} bytes)`].join("\n");
  const { epsilon } = mechanism, odds = Math.exp(epsilon), sure = (100 * odds) / (1 + odds);
  const conclusions = [
    [
      "With your answers this message is at most e",
      element("sup", {}, "ε"),
      " = e",
      element("sup", {}, String(epsilon)),
      ` = ${odds.toFixed(1)} times as likely as with any others. That holds for every message and every pair of answers.`,
    ],
    `Somebody who was 50 % sure of one of your answers can become at most ${sure.toFixed(0)} % sure, and at ` +
      `least ${(100 - sure).toFixed(0)} %.`,
    "A single message is mostly noise. In the mean of many the noise averages out.",
  ];
  at("conclusions").replaceChildren(...conclusions.map((parts) => element("li", {}, ...[parts].flat())));
  const others = Array.from({ length: 12 }, () => bitsOf(mechanism, mechanism.encode(vector)).join(" "));
  at("others").replaceChildren(...others.map((text) => element("li", {}, text)));
  at("sent-none").hidden = true;
  at("sent").hidden = false;
}

// The estimate

async function readEstimate(labels) {
  const answer = await fetch(ESTIMATE, { cache: "no-cache", credentials: "omit" });
  if (!answer.ok) throw new Error(`The collector answered ${answer.status}.`);
  newest = await answer.json();
  showEstimate(labels);
}

function showEstimate(labels) {
  const { count, value, stderr } = newest;
  const messages = `${whole.format(count)} private ${count === 1 ? "message" : "messages"}`;
  setText(at("count"), count ? `From ${messages}.` : "No estimate yet. It appears after a few messages.");
  // As wide as there is room, so that text has its natural size on a phone.
  const width = Math.max(260, Math.round(at("chart").clientWidth)), step = 52, height = labels.length * step + 26;
  const place = (mean) => width / 2 + (Math.max(-1.1, Math.min(1.1, mean)) * width) / 2.4;
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Mean of each answer" });
  for (const [tick, text] of [[-1, "disagree"], [0, "0"], [1, "agree"]]) {
    svg.append(drawn("line", { class: "axis", x1: place(tick), x2: place(tick), y1: 0, y2: height - 24 }));
    svg.append(drawn("text", { class: "tick", x: place(tick), y: height - 6 }, text));
  }
  const rows = labels.map((label, i) => {
    const y = i * step + 34, mean = value?.[i] ?? null, error = stderr?.[i] ?? null;
    svg.append(drawn("text", { x: 0, y: y - 17 }, label));
    if (mean !== null) {
      const ends = [place(0), place(mean)].sort((a, b) => a - b);
      svg.append(drawn("rect", { class: "bar", x: ends[0], width: ends[1] - ends[0], y: y - 10, height: 20, rx: 3 }));
    }
    if (error !== null) {
      const [low, high] = [mean - NORMAL_95 * error, mean + NORMAL_95 * error].map(place);
      svg.append(drawn("path", { class: "error", d: `M${low} ${y}H${high}M${low} ${y - 5}v10M${high} ${y - 5}v10` }));
    }
    if (simulated.count) {
      const x = place(simulated.sums[i] / simulated.count);
      svg.append(drawn("path", { class: "truth", d: `M${x} ${y - 6}l6 6l-6 6l-6 -6z` }));
    }
    const interval = error === null ? "–" : `± ${(NORMAL_95 * error).toFixed(2)}`;
    const cells = [mean === null ? "–" : signed(mean), interval].map((text) => element("td", {}, text));
    return element("tr", {}, element("th", { scope: "row" }, label), ...cells);
  });
  const head = ["Statement", "Mean", "95 %"].map((text) => element("th", { scope: "col" }, text));
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
  const open = at("chart").querySelector("details")?.open ?? false;
  const details = element("details", { open }, element("summary", {}, "As a table"), table);
  at("chart").replaceChildren(svg, details);
}

// Simulated visitors

function randomAnswers() {
  return CHANCES.map((chances) => {
    let left = Math.random();
    const chosen = chances.findIndex((chance) => (left -= chance) < 0);
    return Object.values(ANSWERS)[chosen < 0 ? chances.length - 1 : chosen];
  });
}

async function addSimulated(client) {
  const people = Array.from({ length: SIMULATED }, randomAnswers);
  await client.send(people);
  simulated.count += people.length;
  for (const answers of people) answers.forEach((answer, i) => (simulated.sums[i] += answer));
  const bytes = Math.ceil((people.length * client.campaign.mechanism.messageBits) / 8); // one batch
  const sent = `${whole.format(simulated.count)} so far; the last ${whole.format(people.length)} took`;
  const about = "They answer at random in this page, which sends their private messages as one batch.";
  setText(at("simulated"), `${about} ${sent} ${whole.format(bytes)} bytes.`);
}

// The page

function setLook(look) {
  document.documentElement.dataset.look = look;
  at("look").textContent = look === "dark" ? "Light look" : "Dark look";
}

async function showBudget(ledger, epsilon) {
  const spent = await ledger.spent();
  const left = Math.floor((BUDGET - spent) / epsilon + 1e-9);
  const rest = left > 0 ? "" : " Nothing more can be sent from here.";
  setText(at("budget"), `This browser's ledger: ε = ${spent} of ${BUDGET} spent.${rest}`);
  return left > 0;
}

async function start() {
  const ledger = await Ledger.open("demo-poll", { epsilon: BUDGET });
  const onRetry = (error, seconds) => showProblem(`${error.message}. Next try in ${Math.ceil(seconds)} s.`);
  const options = { mostEpsilon: MOST_EPSILON, patience: PATIENCE_SECONDS, timeout: REQUEST_SECONDS, onRetry };
  const client = await Client.open(CAMPAIGN, { ...options, ledger });
  // Other people, not this one's budget: one batch with a sender's token, which the demonstration gives to everybody.
  const sender = await fetch(SENDER, { credentials: "omit" });
  const { send_token: token } = await sender.json();
  const others = await Client.open(CAMPAIGN, { ...options, token });
  at("problem").hidden = true;
  const { labels, mechanism } = client.campaign, form = at("poll");
  showQuestions(labels);
  setText(at("bits-total"), `one message of ${mechanism.messageBits} bits`);
  const described = `${mechanism.name}, d = ${mechanism.dim}, ε = ${mechanism.epsilon}`;
  setText(at("mechanism"), `${described}, digest ${client.campaign.digest}`);
  let canPay = await showBudget(ledger, mechanism.epsilon);
  const refresh = () => {
    const missing = answersOf(form, labels).filter(Number.isNaN).length;
    at("send").disabled = !canPay || missing > 0;
    setText(at("missing"), canPay && missing > 0 ? `Answer all ${labels.length} statements first.` : "");
  };
  form.addEventListener("input", refresh);
  refresh();

  /** Do something while its button is disabled, and say what went wrong. */
  const during = async (button, work) => {
    button.disabled = true;
    at("problem").hidden = true;
    try {
      await work();
      at("problem").hidden = true;
    } catch (error) {
      complain(error);
    }
    canPay = await showBudget(ledger, mechanism.epsilon);
    button.disabled = false;
    refresh();
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    void during(at("send"), () => sendAndShow(client, answersOf(form, labels)));
  });
  at("simulate").addEventListener("click", () => void during(at("simulate"), () => addSimulated(others)));
  at("simulate").disabled = false;
  for (;;) {
    await readEstimate(labels).catch(() => setText(at("count"), "The collector does not answer; trying again."));
    await new Promise((resolve) => setTimeout(resolve, 1000 * POLL_SECONDS));
  }
}

setLook(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
at("look").addEventListener("click", () =>
  setLook(document.documentElement.dataset.look === "dark" ? "light" : "dark"),
);
start().catch(complain);
