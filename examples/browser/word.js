// A word that never leaves the page: each visitor answers one stage of a study, once, with one private message.

import { element, panel, whole } from "./charts.js";
import { ASKING, at, complain, during, recorded, setText, showRequest, tokenOf, widthOf } from "./page.js";
import { Client, Ledger } from "./sstq.js";

const STUDY = new URL("../demo-words", document.baseURI).href;
const ESTIMATE = new URL("../v1/campaigns/demo-words/estimate", document.baseURI);
const VISITORS = tokenOf("words");
// The most that this page lets the study ask for, which is all that a visitor may spend here.
const MOST_EPSILON = 3;
const POLL_SECONDS = 1, SIMULATED = 1000, MOST_BARS = 12;
// What simulated visitors drink, and how many of 100 do.
const DRINKS = { coffee: 34, tea: 24, water: 16, juice: 9, cola: 7, lemonade: 5, milk: 3, mate: 2 };

let shown = "", filled = 0; // the number of the stage that simulated visitors have filled
let over = false; // the study asks nobody any more

/** Answer the study, or wait for the stage that is this person's. */
async function takePart(client, word) {
  for (;;) {
    const again = await recorded(() => client.takePart(word), (request) => showSent(client.campaign, request));
    if (!again) return;
    setText(at("told"), "This stage has its people. The next one is asked in a moment.");
    await new Promise((resolve) => setTimeout(resolve, Math.max(1000, again - Date.now())));
  }
}

function showSent({ stage, mechanism }, request) {
  showRequest(request);
  const { epsilon, messageBits: bits } = mechanism, odds = Math.exp(epsilon), sure = Math.round((100 * odds) / (1 + odds));
  setText(at("sent-text"), `Your answer to stage ${stage.number}, “${stage.name}”: ${bits} bits, drawn at random. Some are likelier with your word.`);
  setText(
    at("sure"),
    `Somebody who was 50 % sure of your word can become at most ${sure} % sure, and at least ${100 - sure} % (ε = ${epsilon}). ` +
      "No name, no cookie, no identifier of you. Any web server also sees the address that a request comes from.",
  );
}

async function readEstimate() {
  const answer = await fetch(ESTIMATE, { cache: "no-cache", credentials: "omit" });
  if (!answer.ok) throw new Error(`The collector answered ${answer.status}.`);
  const { count, study, final, result } = await answer.json(), now = JSON.stringify([count, study, final, widthOf("chart")]);
  if (now === shown) return study;
  shown = now;
  const { stages, next } = study, open = at("chart").querySelector("details")?.open;
  const state = final ? "The study is over." : `Stage ${stages.length} of ${stages.length + next.length}.`;
  setText(at("count"), `${state} ${count ? `Words from ${whole.format(count)} people.` : "No words yet: the first appear when a stage is over."}`);
  at("stages").replaceChildren(...[...stages, ...next.map((name) => ({ name }))].map(stageOf));
  const words = (result?.word ?? []).slice(0, MOST_BARS), picked = (values) => values.slice(0, words.length);
  const found = words.length && { name: "Share of people", items: words, count, estimate: picked(result.share), low: picked(result.low), high: picked(result.high) };
  at("chart").replaceChildren(...(found ? [panel(found, null, widthOf("chart"), open)] : []));
  return study;
}

function stageOf({ name, people, received }) {
  const told = people === undefined ? "later" : `${whole.format(received)} of ${whole.format(people)} people`;
  const bar = element("progress", { max: people ?? 1, value: Math.min(received ?? 0, people ?? 1), ariaLabel: name });
  return element("li", {}, element("span", {}, name), element("span", { className: "soft" }, told), bar);
}

/** As many people as the stage has room for, up to 1,000, each of whom draws a drink. */
async function addSimulated() {
  const client = await Client.open(STUDY, { mostEpsilon: MOST_EPSILON, ...ASKING, token: VISITORS });
  const { name, stage, mechanism } = client.campaign, room = new URL(`../v1/campaigns/${name}/messages`, document.baseURI);
  const wait = `“${stage.name}” has its people. The next stage is asked in a moment.`;
  if (stage.number === filled) return setText(at("simulated"), wait);
  const answer = await fetch(room, { credentials: "omit", headers: { Authorization: `Bearer ${VISITORS}` } });
  const { messages } = await answer.json();
  if (!messages) return setText(at("simulated"), wait);
  const names = Object.keys(DRINKS), bag = names.flatMap((name) => Array(DRINKS[name]).fill(name));
  const drink = () => bag[Math.floor(bag.length * Math.random())];
  const count = Math.min(SIMULATED, messages);
  await client.sendMessages(Array.from({ length: count }, () => mechanism.answer(stage.question.held(drink()))));
  if (count === messages) filled = stage.number;
  setText(at("simulated"), `${whole.format(count)} more answered “${stage.name}”.`);
}

async function start() {
  const ledger = await Ledger.open("demo-words", { epsilon: MOST_EPSILON });
  const client = await Client.open(STUDY, { mostEpsilon: MOST_EPSILON, ...ASKING, ledger });
  at("problem").hidden = true;
  setText(at("bits-total"), `one message of ${client.campaign.mechanism.messageBits} bits, with ε = ${client.campaign.mechanism.epsilon} in total`);
  const hasAnswered = async () => (await ledger.entries()).length > 0;
  const refresh = async () => {
    const isDone = await hasAnswered(), isEmpty = !at("word").value.trim();
    at("send").disabled = isDone || isEmpty || over;
    const nobody = over ? "The study is over, and asks nobody any more." : "";
    setText(at("told"), isDone ? "Sent, thank you. You have answered this study, and nobody is asked twice." : nobody);
  };
  at("word").addEventListener("input", () => void refresh());
  at("word-form").addEventListener("submit", (event) => {
    event.preventDefault();
    void during(at("send"), () => takePart(client, at("word").value.trim())).then(refresh);
  });
  at("simulate").addEventListener("click", () => void during(at("simulate"), addSimulated));
  at("simulate").disabled = !VISITORS;
  at("visitors").hidden = !VISITORS;
  await refresh();
  // What an earlier visit paid for and could not send.
  await client.sendWaiting().catch(complain);
  for (;;) {
    const study = await readEstimate().catch(() => setText(at("count"), "The collector does not answer; trying again."));
    if (!over && study && study.state !== "open" && study.state !== "learning") {
      over = true;
      at("visitors").hidden = true;
      await refresh();
    }
    // The next stage has begun.
    if (filled && study?.stages.length > filled && at("simulated").textContent.startsWith("“")) setText(at("simulated"), "");
    await new Promise((resolve) => setTimeout(resolve, 1000 * POLL_SECONDS));
  }
}

start().catch(complain);
