// A poll whose answers never leave the page: each visitor sends one private message of a few bits.

import { element, panel, percent, simulated, whole } from "./charts.js";
import { ASKING, at, complain, during, recorded, setText, showRequest, tokenOf, widthOf } from "./page.js";
import { Client, Ledger } from "./sstq.js";

const CAMPAIGN = new URL("../demo-poll", document.baseURI).href;
// Who runs the collector has a link with a token for batches: it is not sent with a request for the page.
const VISITORS = tokenOf("visitors");
const ESTIMATE = new URL("../v1/campaigns/demo-poll/estimate", document.baseURI);
// The most that this page lets a campaign ask for per message, and what a visitor may spend here in all: two messages.
const MOST_EPSILON = 2, BUDGET = 4;
const POLL_SECONDS = 1, SIMULATED = 1000, NONE = "none of these";
// What simulated visitors answer: the chances of the labels, or the mean and the spread of a number.
const CHANCES = [
  [0.1, 0.2, 0.35, 0.2, 0.15],
  [0.6, 0.7, 0.25, 0.4],
  [38, 9],
  [0.05, 0.15, 0.2, 0.35, 0.25],
];

const made = { people: 0, marks: new Map() }; // the simulated visitors of this tab: how many gave each answer
const normals = Array.from({ length: 99 }, normal);
let newest = null;

/** A normal number. */
function normal() {
  return Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
}

// The questions, as the campaign has them

function input(type, name, value) {
  const own = element("input", { type, name, value });
  return element("label", {}, own, ` ${value}`);
}

function showQuestions(questions) {
  const fieldsets = questions.map(({ name, type, labels, low, high }, number) => {
    const own = `q${number}`;
    const answers = {
      choice: () => labels.map((label) => input("radio", own, label)),
      multichoice: () => [...labels, NONE].map((label) => input("checkbox", own, label)),
      number: () => [element("input", { type: "number", name: own, ariaLabel: name, placeholder: `${low} to ${high}` })],
    }[type]();
    return element("fieldset", {}, element("legend", {}, name), element("div", { className: "choices" }, ...answers));
  });
  at("questions").replaceChildren(...fieldsets);
  at("questions").addEventListener("change", ({ target }) => {
    // “None of these” goes with nothing else.
    if (target.type !== "checkbox" || !target.checked) return;
    for (const box of target.form.elements[target.name])
      if (box !== target && (box.value === NONE || target.value === NONE)) box.checked = false;
  });
}

/** What a visitor has answered so far; null for what is left out. */
function recordOf(form, questions) {
  const given = new FormData(form);
  const answers = questions.map(({ type, labels }, number) => {
    const all = given.getAll(`q${number}`).filter((text) => text !== "");
    if (!all.length) return null;
    if (type === "number") return Number(all[0]);
    const chosen = labels.filter((label) => all.includes(String(label)));
    return type === "choice" ? chosen[0] : chosen;
  });
  return Object.fromEntries(questions.map(({ name }, number) => [name, answers[number]]));
}

// What leaves the page

/** Send one message and tell about the very request that the browser makes. */
async function sendAndShow(client, record) {
  const { mechanism } = client.campaign, message = mechanism.answer(record);
  const tell = (request) => showSent(mechanism, record, message, request);
  await recorded(() => client.sendMessages([message]), tell);
  setText(at("thanks"), "Sent, thank you.");
}

/** Whether the visitor wants to spend ε again. */
function asksAgain(spent, epsilon) {
  const dialog = at("again");
  setText(
    at("again-text"),
    `This browser has spent ε = ${spent} here. A second answer spends ε = ${epsilon} more, ${spent + epsilon} in all: ` +
      "whoever takes both messages together can conclude more about you.",
  );
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "send"), { once: true });
  });
}

const binary = (value, bits) => value.toString(2).padStart(bits, "0");
const bitsOf = ({ fields }, message) => fields.map(({ bits }, i) => binary(message[i], bits));

function showSent(mechanism, record, message, request) {
  const texts = bitsOf(mechanism, message), [answer, question] = message, { questions } = mechanism;
  const cells = texts.flatMap((text, field) =>
    Array.from(text, (bit) => element("span", { className: `field${field}` }, bit)),
  );
  at("bits").replaceChildren(...cells);
  at("bits").ariaLabel = mechanism.fields.map(({ name }, i) => `${name}: ${texts[i].split("").join(" ")}`).join("; ");
  const meaning = [
    `number ${whole.format(answer)}: drawn at random, some numbers being likelier with your answer`,
    `“${questions[question].name}”: drawn at random, before your answers were looked at. The others were not used.`,
  ];
  const facts = mechanism.fields.map(({ name, bits }, i) => {
    const term = element("dt", { className: `field${i}` }, `${name}, ${bits} bits`);
    return element("div", {}, term, element("dd", {}, meaning[i]));
  });
  at("fields").replaceChildren(...facts);
  showRequest(request);
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
  const others = Array.from({ length: 12 }, () => bitsOf(mechanism, mechanism.answer(record)).join(" "));
  at("others").replaceChildren(...others.map((text) => element("li", {}, text)));
}

// The estimate

async function readEstimate(mechanism) {
  const answer = await fetch(ESTIMATE, { cache: "no-cache", credentials: "omit" });
  if (!answer.ok) throw new Error(`The collector answered ${answer.status}.`);
  const read = await answer.json(), shown = [read.count, made.people, widthOf("chart")].join();
  if (newest?.shown === shown) return;
  newest = { ...read, shown };
  showEstimate(mechanism);
}

function showEstimate({ questions, epsilon }) {
  const { count, questions: found } = newest;
  const messages = `${whole.format(count)} private ${count === 1 ? "message" : "messages"}`;
  const each = `Everybody answers one of the ${questions.length} questions with the whole ε = ${epsilon}.`;
  setText(at("count"), count ? `From ${messages}. ${each}` : "No estimate yet. It appears after a few messages.");
  const open = [...at("chart").querySelectorAll("details")].map((details) => details.open), width = widthOf("chart");
  const truth = ({ name }) => made.people && made.marks.get(name).map((marks) => marks / made.people);
  at("chart").replaceChildren(...(found ?? []).map((each, i) => panel(each, truth(each), width, open[i])));
}

// Simulated visitors

function randomAnswer({ type, labels }, chances) {
  if (type === "number") return Math.round(chances[0] + chances[1] * normal());
  if (type === "multichoice") return labels.filter((_, i) => Math.random() < chances[i]);
  let left = Math.random();
  return labels.find((_, i) => (left -= chances[i]) < 0) ?? labels.at(-1);
}

/** Which bars an answer counts for. */
function marksOf({ type, labels, low, high, bins }, answer) {
  if (type !== "number") return labels.map((label) => Number([answer].flat().includes(label)));
  const place = Math.floor(((Math.min(Math.max(answer, low), high) - low) / (high - low)) * bins);
  return Array.from({ length: bins }, (_, i) => Number(i === Math.min(place, bins - 1)));
}

async function addSimulated(client, questions) {
  const answered = () => questions.map((question, i) => [question.name, randomAnswer(question, CHANCES[i])]);
  const people = Array.from({ length: SIMULATED }, () => Object.fromEntries(answered()));
  await client.send(people);
  made.people += people.length;
  for (const question of questions) {
    const before = made.marks.get(question.name) ?? [];
    const sums = people.map((person) => marksOf(question, person[question.name]));
    const add = (all, marks) => marks.map((mark, i) => mark + (all[i] ?? 0));
    made.marks.set(question.name, sums.reduce(add, before));
  }
  const bytes = Math.ceil((people.length * client.campaign.mechanism.messageBits) / 8); // one batch
  const sent = `${whole.format(made.people)} so far; the last ${whole.format(people.length)} took`;
  const about = "They answer at random in this page, which sends their private messages as one batch.";
  setText(at("simulated"), `${about} ${sent} ${whole.format(bytes)} bytes.`);
}

// What another ε would do

function showWhatIf([{ name, labels }, ...others]) {
  const epsilon = Number(at("epsilon").value), people = Number(at("people").value), odds = Math.exp(epsilon);
  const found = simulated(name, labels, CHANCES[0], people / (others.length + 1), epsilon, normals);
  const pale = found.low.filter((low) => !(low > 0)).length, sure = percent(odds / (1 + odds));
  setText(
    at("whatif-text"),
    `ε = ${epsilon} in all per person: somebody who was 50 % sure of your answer can become ${sure} sure at most. ` +
      `From ${whole.format(people)} people, ${pale || "none"} of ${labels.length} bars cannot be told from zero.`,
  );
  at("whatif").replaceChildren(panel(found, CHANCES[0], widthOf("whatif"), at("whatif").querySelector("details")?.open));
}

// The page

async function showBudget(ledger, epsilon) {
  const spent = await ledger.spent();
  const left = Math.floor((BUDGET - spent) / epsilon + 1e-9);
  const rest = left > 0 ? "" : " Nothing more can be sent from here.";
  setText(at("budget"), `This browser's ledger: ε = ${spent} of ${BUDGET} spent.${rest}`);
  return left > 0;
}

async function start() {
  const ledger = await Ledger.open("demo-poll", { epsilon: BUDGET });
  const options = { mostEpsilon: MOST_EPSILON, ...ASKING };
  const client = await Client.open(CAMPAIGN, { ...options, ledger });
  // Other people, not this one's budget.
  const others = VISITORS && (await Client.open(CAMPAIGN, { ...options, token: VISITORS }));
  at("problem").hidden = true;
  // What an earlier visit paid for and could not send.
  await client.sendWaiting().catch(complain);
  const { mechanism } = client.campaign, { questions } = mechanism, form = at("poll");
  if (!questions) throw new Error("The campaign demo-poll is no survey: delete it, and start the collector again");
  showQuestions(questions);
  for (const id of ["epsilon", "people"]) at(id).addEventListener("input", () => showWhatIf(questions));
  showWhatIf(questions);
  setText(at("bits-total"), `one message of ${mechanism.messageBits} bits`);
  const described = `${mechanism.name} of ${questions.length} questions, ε = ${mechanism.epsilon}`;
  setText(at("mechanism"), `${described}, digest ${client.campaign.digest}`);
  let canPay = await showBudget(ledger, mechanism.epsilon);
  const refresh = () => {
    const isEmpty = Object.values(recordOf(form, questions)).every((answer) => answer === null);
    at("send").disabled = !canPay || isEmpty;
    setText(at("missing"), canPay && isEmpty ? "Answer at least one question first." : "");
  };
  form.addEventListener("input", refresh);
  refresh();

  const doing = async (button, work) => {
    await during(button, work);
    canPay = await showBudget(ledger, mechanism.epsilon);
    refresh();
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    setText(at("thanks"), "");
    void doing(at("send"), async () => {
      const spent = await ledger.spent();
      if (!spent || (await asksAgain(spent, mechanism.epsilon))) await sendAndShow(client, recordOf(form, questions));
    });
  });
  at("simulate").addEventListener("click", () => void doing(at("simulate"), () => addSimulated(others, questions)));
  at("simulate").disabled = !others;
  at("visitors").hidden = !others;
  for (;;) {
    await readEstimate(mechanism).catch(() => setText(at("count"), "The collector does not answer; trying again."));
    await new Promise((resolve) => setTimeout(resolve, 1000 * POLL_SECONDS));
  }
}

start().catch(complain);
