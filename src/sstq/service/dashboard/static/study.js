// A study on the page: its stages, and what it has found so far: words, curves, a mean, bounds or the accuracy by class.

import { ONLY_ADMINISTRATOR, ShownCampaign, claim, words } from "./campaign.js";
import { read } from "./collector.js";
import { at, count, element, number, percent, setFacts, setText } from "./page.js";

const MOST_BARS = 40,
  MOST_CURVES = 12,
  MOST_NAMES = 5;
const CHANGED = /(\d+) \(\d+ %\)$/;
// What a stage's state is called here, if it is another word.
const STAGES = { closed: "learning" };
// A value with as many digits as its error has a use for.
function rounded(value, error) {
  const places = error > 0 ? Math.min(Math.max(1 - Math.floor(Math.log10(error)), 0), 8) : 0;
  return error >= 1e5 ? `${number(value)} ± ${number(error)}` : `${value.toFixed(places)} ± ${error.toFixed(places)}`;
}

const share = ({ share: found, stderr }) =>
  stderr === null ? percent(found) : `${rounded(100 * Math.max(0, found), 100 * stderr)}\u00a0%`;
const some = (names, most) =>
  names.length <= most ? names.join(", ") : `${names.slice(0, most).join(", ")} and ${count(names.length - most)} more`;

export class ShownStudy extends ShownCampaign {
  build() {
    at("stages").replaceChildren();
    this.show("study", "Result");
  }

  async update(status) {
    const known = [status.covered, status.study.state].join();
    this.status = status;
    if (known !== this.known) {
      const { count: covered, result } = await read(`${this.path}/estimate`);
      if (this.removed) return;
      Object.assign(this, { known, covered, result });
      this.draw();
    }
    this.showCounts();
  }

  showCounts() {
    const { study, received } = this.status, { state, stages, next, epsilon, delta, note } = study;
    at("state").className = `state ${state}`;
    setText(at("state"), words[state]);
    setFacts(at("facts"), [
      ["People so far", `${count(received)} of ${count(study.people)}`],
      ["Learned from", count(this.covered)],
      ["Stage", `${stages.length} of ${stages.length + next.length}`],
      ["ε per person", delta === null ? number(epsilon) : `(${number(epsilon)}, ${delta.toExponential()})`],
    ]);
    const said = note && `${note[0].toUpperCase()}${note.slice(1)}.`;
    for (const [id, isOwn] of [["alarm", state === "failed"], ["note", state !== "failed"]]) {
      at(id).hidden = !said || !isOwn;
      setText(at(id), isOwn ? said : "");
    }
    setText(at("readers"), this.forReaders(this.status));
    this.showStages(study);
    this.showPrivacy(study);
  }

  forReaders({ status, release_every: every }) {
    const who = this.whoReads();
    if (who && status === "closed") return `${who} what was released of the result.`;
    return who ? `${who} what is known, each time stages with ${count(every)} more people are over.` : ONLY_ADMINISTRATOR;
  }

  showStages({ state, stages, next, hours }) {
    const list = at("stages"), before = list.children.length;
    stages.forEach((stage, place) => {
      const row = list.children[place] ?? list.appendChild(stageRow(stage)), [, bar, people, mark] = row.children;
      bar.max = Math.max(stage.people, stage.received);
      bar.value = stage.received;
      bar.ariaLabel = `People of ${stage.name}`;
      setText(people, `${count(stage.received)} of ${count(stage.people)} people`);
      const now = shownState(stage, state);
      mark.className = `state ${now}`;
      setText(mark, words[now]);
      if (stage.shuffling) setText(row.children[4], `The crowd that arrived justifies ${claim(stage.shuffling)}.`);
    });
    if (stages.length > before) list.scrollTop = list.scrollHeight;
    const lasting = hours === null ? "" : ` A stage lasts ${duration(hours)}.`;
    setText(at("stages-text"), `${next.length ? `Then: ${some(next, MOST_NAMES)}.` : ""}${lasting}`.trim());
  }

  showPrivacy({ epsilon, delta, local_epsilon: local }) {
    const once = "A participant answers one stage of the study, once,";
    setText(
      at("privacy-text"),
      delta === null
        ? `${once} and spends ε = ${number(epsilon)} in total.`
        : `${once} and spends (${number(epsilon)}, ${delta.toExponential()}) in total behind the shuffler, as long as it does not collude with the collector; otherwise ε = ${number(local)}.`,
    );
    const certified = this.certified ? [["certified in exact arithmetic, per message", `≤ ${this.certified}`]] : [];
    setFacts(at("privacy"), [["ε of the message of this stage", number(local)], ...certified]);
  }

  // The figure with this caption, kept from one update to the next.
  named(caption) {
    const found = this.figures.find((figure) => figure.caption.textContent === caption);
    return found ?? this.figure("estimate-figures", caption);
  }

  draw() {
    const { result, status } = this, [, drawing = drawTable] = DRAWINGS.find(([name]) => name in (result ?? {})) ?? [];
    if (result && this.covered) setText(at("estimate-text"), drawing(this, result));
    else
      setText(
        at("estimate-text"),
        { ended: "The study ended before anything was known.", failed: "Nothing was learned." }[status.study.state] ??
          "Nothing is known yet. The result appears here when a stage is over.",
      );
  }
}

// A period may pass in which nobody answers: a panel goes on, and has learned nothing from it.
function shownState({ state, received }, ofStudy) {
  if (state === "open") return ofStudy;
  if (state === "learned" && !received) return "unanswered";
  return STAGES[state] ?? state;
}

function stageRow({ number: place, name, shuffling }) {
  const cells = [
    element("strong", { textContent: `${place}. ${name}` }),
    element("progress"),
    element("span", { className: "count" }),
    element("span", { className: "state" }),
  ];
  return element("li", {}, ...cells, ...(shuffling ? [element("p", { className: "text claim" })] : []));
}

const UNITS = [
  [24, "days"],
  [1, "hours"],
  [1 / 60, "minutes"],
  [1 / 3600, "seconds"],
];

function duration(hours) {
  const [long, unit] = UNITS.find(([long]) => hours >= long) ?? UNITS.at(-1), written = number(Number((hours / long).toPrecision(3)));
  return `${written} ${written === "1" ? unit.slice(0, -1) : unit}`;
}

const intervals = ({ low, high }, most) => low.slice(0, most).map((end, place) => [end, high[place]]);

// A drawing shows a result and returns what is said about it. Each is for the results that have this column.
const DRAWINGS = [
  ["word", drawWords],
  ["curves", drawCurves],
  ["class", drawClasses],
  ["mean", drawMean],
  ["column", drawBounds],
];

function drawShares(shown, caption, names, values, ends, what, pale) {
  const figure = shown.named(caption), picked = (all) => all.slice(0, names.length);
  figure.root.hidden = !names.length;
  if (!names.length) return;
  figure.bars(names, [{ label: what, values: picked(values), ends }], what.toLowerCase(), { pale, limits: [0, 1], list: true });
  figure.rows(
    ["", what, "Low", "High"],
    names.map((name, place) => [name, percent(values[place]), ...ends[place].map(percent)]),
  );
  const best = names[0] === undefined ? "" : `; the first is ${names[0]} with ${percent(values[0])}`;
  figure.describe(`${names.length} bars${best}. The table below has all bars.`);
}

function drawWords(shown, { word, share: shares, low, high, others, prefixes }) {
  const names = word.slice(0, MOST_BARS).map((text) => text || "(empty)"), ends = intervals({ low, high }, MOST_BARS);
  drawShares(shown, "Share of people who hold each word", names, shares, ends, "Share", ends.map(([from]) => from <= 0));
  const left = word.length > names.length ? ` The ${MOST_BARS} most frequent are shown; all ${count(word.length)} are in the CSV.` : "";
  const found = word.length
    ? `${count(word.length)} ${word.length === 1 ? "word" : "words"} from ${count(shown.covered)} people. With 95 % probability every true share lies within its interval.${left} ${share(others)} of people hold others: rare words, or longer ones.`
    : `No whole word stands out yet, from ${count(shown.covered)} people.`;
  const asked = prefixes?.length ? ` The next stage asks about words that begin with: ${some(prefixes, 12)}.` : "";
  return found + asked;
}

function drawClasses(shown, { class: classes, accuracy, low, high, predicted, majority }) {
  const names = classes.map(String), ends = intervals({ low, high }).map(([from, to]) => [Math.max(0, from), Math.min(1, to)]);
  drawShares(shown, "Accuracy of each class", names, accuracy, ends, "Accuracy", names.map(() => false));
  const sure = predicted.share === null ? "How often it is right is not known: too few people told." : `The classifier is right about ${share(predicted)} of people. Who always says the most frequent class is right about ${(100 * majority).toFixed(1)} %.`;
  return `From ${count(shown.covered)} people. ${sure} Bars have intervals of 95 %.`;
}

function drawMean(shown, { mean, half_width: reach, clip, beyond }) {
  const names = mean.map((_, place) => String(place)).slice(0, MOST_BARS), figure = shown.named("Mean of each coordinate");
  const picked = (values) => values.slice(0, names.length);
  figure.bars(names, [{ label: "Mean", values: picked(mean), errors: picked(reach) }], "mean");
  figure.describe(`${names.length} bars. The table below has all bars.`);
  const left = mean.length > names.length ? ` ${MOST_BARS} coordinates are shown; all ${count(mean.length)} are in the CSV.` : "";
  return `Mean of ${count(shown.covered)} people. With 95 % probability every true value lies within its bar. The range that was found: within ${number(clip)} of the centre, and ${share(beyond)} of people beyond it.${left}`;
}

const long = (value) => Number(value.toPrecision(4)).toLocaleString("en");

function drawBounds(shown, { column, low, high, beyond, stderr }) {
  const rows = column.map((name, place) => {
    const outside = beyond && share({ share: beyond[place], stderr: stderr[place] });
    return [name, ...[low, high].map((ends) => long(ends[place])), outside];
  });
  shown.named("Range of each column").tabulate(["Column", "From", "To", "Beyond"], rows);
  return `The ranges that were found, from ${count(shown.covered)} people, and the share of people beyond them.`;
}

function drawCurves(shown, { period, curves, people }) {
  for (const curve of curves.slice(0, MOST_CURVES)) {
    const caption = [curve.question, curve.item].filter(Boolean).join(": ") || "Curve", figure = shown.named(caption);
    const last = curve.value.length - 1, half = (curve.high[last] - curve.low[last]) / 2;
    const now = `Now ${rounded(curve.value[last], half)}`, changed = curve.changed.match(CHANGED);
    const said = changed ? `${now}, ${curve.changed}.` : `${now}.`;
    figure.tell(said, true);
    figure.curve(curve, period, changed ? [Number(changed[1]) - 1] : []);
    figure.describe(`${said} The table below has every ${period}.`);
  }
  const left = curves.length > MOST_CURVES ? ` ${MOST_CURVES} curves are shown; all ${count(curves.length)} are in the CSV.` : "";
  return `${count(shown.covered)} people in ${count(people.length)} ${people.length === 1 ? period : `${period}s`}, each of whom answered once. With 95 % probability the truth of a ${period} lies within its band.${left}`;
}

// Of a kind that this page does not know: its columns.
function drawTable(shown, result) {
  const columns = Object.entries(result).filter(([, values]) => Array.isArray(values));
  const written = (value) => (typeof value === "number" || value === null ? number(value) : String(value));
  const rows = (columns[0]?.[1] ?? []).map((_, place) => columns.map(([, values]) => written(values[place])));
  shown.named("All that is known").tabulate(columns.map(([name]) => name), rows);
  return `From ${count(shown.covered)} people.`;
}
