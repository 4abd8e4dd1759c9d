// A campaign on the page: its figures and texts, made once and then changed as messages arrive.

import { Figure } from "./charts.js";
import { Refused, address, ask, read } from "./collector.js";
import { at, compact, count, element, number, percent, setFacts, setText } from "./page.js";
import { drawQuestion } from "./survey.js";

const MOST_BARS = 60,
  MOST_HOURS = 168,
  MOST_GROUPS = 8,
  MOST_SUMMED = 20;
// Of a mechanism's JSON: what the certificate and the title say.
const INTERNAL = ["format", "version", "mechanism", "seed", "alignment", "inside", "threshold"];
export const ONLY_ADMINISTRATOR = "Only the administrator sees this page.";
const FRAME_BIAS = /frame bias exceeds [^;]*; pass [^;]*(; )?/g;
export const words = {
  open: "● open",
  scheduled: "◷ not open yet",
  closed: "■ closed",
  waiting: "◷ waiting",
  learning: "◷ learning",
  ended: "■ ended",
  failed: "✕ failed",
  learned: "✓ learned",
  unanswered: "■ nobody answered",
  dropped: "■ not used",
};

export class ShownCampaign {
  constructor(name) {
    this.name = name;
    this.path = `v1/campaigns/${name}`;
    this.covered = -1;
    this.received = -1;
    this.figures = [];
    this.removed = false;
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
    this.bounds = mechanism.bounds;
    this.labels = labels ?? this.bounds?.map(([name]) => name);
    this.unit = mechanism.mechanism === "frequencies" ? "category" : "coordinate";
    this.groups = mechanism.groups
      ? (groupLabels ?? Array.from({ length: mechanism.groups }, (_, group) => `Group ${group}`))
      : null;
  }

  // What a campaign and a study have in common.
  show(kind, title) {
    at("campaign").dataset.kind = kind;
    setText(at("name"), this.name);
    setText(at("estimate-title"), title);
    document.title = `${this.name} · sstq collector`;
    at("csv").href = address(`${this.path}/estimate?format=csv`).href;
    at("csv").download = `${this.name}.csv`;
    this.showMechanism();
    at("campaign").hidden = false;
  }

  build() {
    const { questions } = this.document.mechanism;
    // A survey has no error as a whole: its questions have units of their own.
    at("error-section").hidden = Boolean(questions);
    if (questions)
      this.panels = questions.map(({ name }) => this.figure("estimate-figures", name));
    else if (this.groups) {
      this.shares = this.figure("estimate-figures", "Share of each group");
      if (this.shape)
        this.pictures = this.groups
          .slice(0, MOST_GROUPS)
          .map((group) => this.figure("estimate-figures", `Mean of ${group}`, true));
      else this.bars = this.figure("estimate-figures", "Mean of each group");
    } else if (this.shape) this.pictures = [this.figure("estimate-figures", "Mean image", true)];
    else {
      const unit = this.bounds ? "column" : this.unit;
      this.bars = this.figure("estimate-figures", unit === "category" ? "Share of each category" : `Mean of each ${unit}`);
    }
    if (this.pictures) {
      const grid = element("div", { className: "images" }, ...this.pictures.map(({ root }) => root));
      at("estimate-figures").append(grid);
    }
    this.errors = this.figure("error-figures", "Standard error against messages");
    this.hours = this.figure("arrivals-figures", "Messages per hour");
    this.show("campaign", "Estimate");
  }

  remove() {
    this.removed = true;
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
      ...(mechanism.questions ? [["questions", count(mechanism.questions.length)]] : []),
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
      if (this.removed) return;
      this.estimate = estimate;
      this.progress = withNewest(progress, estimate, this.document.mechanism);
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

  showCounts(counts, all) {
    const { status, received, tokens_issued: issued, tokens_unspent: unspent, shuffling } = counts;
    this.shuffling = shuffling;
    at("state").className = `state ${status}`;
    setText(at("state"), words[status]);
    const error = this.progress.measured.at(-1)?.[1];
    const facts = [
      ["Messages received", count(received)],
      ["In this estimate", count(this.covered)],
      this.panels
        ? ["Questions", count(this.panels.length)]
        : this.bounds && error
          ? ["Standard error, of a range", percent(error / this.document.mechanism.clip / 2)]
          : ["Standard error", number(error)],
    ];
    const tested = verdict(this.estimate.checks);
    if (tested) facts.push(["Test of the messages", tested]);
    if (issued) facts.push(["Tokens left", `${count(unspent)} of ${count(issued)}`]);
    facts.push(["ε per message", number(this.progress.epsilon)]);
    if (shuffling) facts.push(shuffledFact(shuffling));
    setFacts(at("facts"), facts);
    if (!this.covered) setText(at("estimate-text"), this.withoutMessages(counts));
    setText(at("readers"), this.forReaders(counts));
    this.showPrivacy(all);
  }

  // What readers see, and when.
  forReaders({ status, released, release_every: every }) {
    const who = this.whoReads();
    if (!who) return ONLY_ADMINISTRATOR;
    const over = status === "closed";
    if (!released) return `${who} ${over ? "no estimate" : `an estimate as soon as ${count(every)} messages are counted`}.`;
    const more = count(Math.max(every, Math.ceil(released / 49))); // 2 % of all then
    const next = over ? "" : `, and the next one as soon as ${more} more are counted`;
    return `${who} the estimate from ${count(released)} messages${next}.`;
  }

  // Why there is no estimate.
  withoutMessages({ status, received, shuffling }) {
    if (status !== "closed" || received) return "No estimate yet. It appears here as messages arrive.";
    return shuffling
      ? "Nothing has arrived. The shuffler forwards messages minutes after the end, and drops fewer than the threshold."
      : "The campaign closed without a message.";
  }

  // The beginning of a sentence; empty if nobody but the administrator reads.
  whoReads() {
    return { public: "Everybody sees", token: "Readers with the token see" }[this.document.readers] ?? "";
  }

  showPrivacy(all) {
    const { epsilon, privacy_loss: loss } = this.progress;
    const { shuffling } = this;
    const once = this.document.senders === "single-use";
    setText(
      at("privacy-text"),
      shuffling
        ? `The shuffler mixes what people send. What has arrived justifies ${claim(shuffling)}, as long as the shuffler does not collude with the collector; otherwise a participant spends ε = ${number(shuffling.local_epsilon)}.`
        : once
          ? `A token works once, so a participant sends one message and spends ε = ${number(epsilon)} in total.`
          : `A participant who sends one message spends ε = ${number(epsilon)} in total; who sends k messages spends k times that.`,
    );
    const facts = [
      ["ε of one message", number(epsilon)],
      this.certified
        ? ["certified in exact arithmetic", `≤ ${this.certified}`]
        : ["exact loss of one message", `≤ ${number(loss)}`],
    ];
    if (shuffling) {
      const { accepted, refused } = shuffling;
      facts.push(
        ["threshold of a crowd", count(this.document.shuffling.threshold)],
        ["envelopes that count", count(accepted)],
        ["envelopes refused", count(refused.foreign + refused.malformed + refused.repeated)],
      );
    }
    const some = all.length > 1 && all.length <= MOST_SUMMED;
    if (some)
      facts.push([
        `one message to each of these ${all.length} campaigns`,
        this.total === undefined ? "…" : `ε = ${number(this.total)}`,
      ]);
    setFacts(at("privacy"), facts);
    if (some && this.summed !== all.map(({ name }) => name).join()) this.sum(all);
  }

  // Basic composition: what somebody spends who takes part in all campaigns.
  async sum(all) {
    this.summed = all.map(({ name }) => name).join();
    const documents = await Promise.all(all.map(({ name }) => read(`v1/campaigns/${name}`)));
    this.total = documents.reduce((sum, { mechanism }) => sum + mechanism.epsilon * (mechanism.messages ?? 1), 0);
    if (!this.removed) this.showPrivacy(all);
  }

  showEstimate() {
    const { value, stderr, region, groups, note, count: covered, checks } = this.estimate;
    at("note").hidden = !note;
    setText(at("note"), inPlainWords(note));
    at("note").title = note;
    this.showChecks(checks);
    if (!covered) {
      this.figures.forEach(({ root }) => {
        root.hidden = true;
      });
      this.errors.root.hidden = false;
      return;
    }
    this.figures.forEach(({ root }) => {
      root.hidden = false;
    });
    if (this.panels) {
      this.showQuestions(covered);
      return;
    }
    const size = this.document.mechanism.dim ?? this.document.mechanism.categories;
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
        ? ` The ${MOST_BARS} bars that stand out most are shown; all ${count(size)} are in the CSV.`
        : "";
    const width = region.half_width ?? stderr;
    const bars = this.bounds
      ? "Bars say where in its range a mean is."
      : "Pale bars are within their error of zero.";
    setText(
      at("estimate-text"),
      covered > 1
        ? `Mean of ${count(covered)} messages. With ${100 * region.level} % probability every true value lies within its bar. ${bars}${left}`
        : `One message: its error is not known, and it says almost nothing.${left}`,
    );
    const picked = (numbers) => places.map((place) => numbers[place]);
    if (this.bounds) this.showColumns(places, names, value, width);
    else this.bars.bars(picked(names), [{ label: "Mean", values: picked(value), errors: picked(width) }], "mean");
    const top = places.reduce((best, place) => (value[place] > value[best] ? place : best), places[0]);
    this.bars.describe(
      `${places.length} bars; the highest is ${names[top]} with ${number(value[top])} ± ${number(width[top])}. The table below has all bars.`,
    );
  }

  // Columns have units of their own: bars share the axis of their ranges, and the table has the units.
  showColumns(places, names, value, width) {
    const of = places.map((place) => {
      const [, low, high] = this.bounds[place];
      return { mean: (100 * (value[place] - low)) / (high - low), error: (100 * width[place]) / (high - low) };
    });
    const shown = places.map((place) => `${names[place]}: ${number(value[place])}`);
    const series = { label: "Mean", values: of.map(({ mean }) => mean), errors: of.map(({ error }) => error) };
    const pale = places.map(() => false);
    this.bars.bars(shown, [series], "% of the range", { pale, list: true });
    this.bars.rows(
      ["", "Mean", "± (Mean)", "Range"],
      places.map((place) => {
        const [, low, high] = this.bounds[place];
        return [names[place], number(value[place]), number(width[place]), `${number(low)} to ${number(high)}`];
      }),
    );
  }

  showQuestions(covered) {
    setText(
      at("estimate-text"),
      covered > 1
        ? `${count(covered)} messages, each with one answer to one question and ε = ${number(this.progress.epsilon)} in all. Intervals hold for all bars of a question at once with probability ${100 * this.estimate.region.level} %. Pale bars say nothing yet: their interval reaches zero, or both ends of the range.`
        : "One message: it answers one question, and says almost nothing.",
    );
    this.estimate.questions.forEach((question, place) => drawQuestion(this.panels[place], question));
  }

  // What the tests of the messages say: only alarms are worth a place at the top.
  showChecks(checks) {
    const alarms = Object.values(checks ?? {}).filter((said) => said.startsWith("alarm: "));
    at("alarm").hidden = !alarms.length;
    setText(
      at("alarm"),
      alarms.length ? `This estimate should not be trusted: ${alarms.map((said) => said.slice(7)).join("; ")}.` : "",
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
      .filter((group) => means[group][0] !== null) // the note says how many groups have too few people for a mean
      .sort((one, other) => shares[other] - shares[one])
      .slice(0, MOST_GROUPS)
      .sort((one, other) => one - other);
    if (most.length === 0) return this.bars.bars([], [], "mean");
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
    if (this.panels) return;
    const { measured, predicted } = this.progress;
    const [last, then] = [measured.at(-1), predicted.at(-1)];
    const parts = last ? [`Now ${number(last[1])} with ${count(last[0])} messages.`] : [];
    parts.push(`With ${compact(then[0])} messages, ${number(then[1])} is predicted.`, ...this.atClosing());
    setText(
      at("error-text"),
      `${parts.join(" ")} The prediction is for people all alike, with vectors of the largest norm; the measured error includes how people differ.${this.bounds ? ` An error of ${number(this.document.mechanism.clip)} is half the range of every column.` : ""}`,
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
        ? `${count(total)} ${total === 1 ? "message" : "messages"} in ${count(hours.length)} ${hours.length === 1 ? "hour" : "hours"}. No finer time is stored.`
        : this.covered
          ? "Hours appear here once they are over. No finer time is stored."
          : "None yet. No time finer than the hour is stored.",
    );
    this.hours.root.hidden = !hours.length;
    this.hours.arrivals(hours);
    this.hours.describe(`${at("arrivals-text").textContent} The table below has every hour.`);
  }
}

// What the batches that arrived justify, never what was planned.
export function claim({ crowds }) {
  const each = crowds.map((crowd) => {
    const { people, delta, epsilon_if_half_fake: half, isolating_share: share } = crowd;
    const claimed = `${pair(crowd)} for ${count(people)} people`;
    if (!delta) return `${claimed}, as without a shuffler`;
    const fake = `ε = ${number(half)} if half of them are fake`;
    const held = `nothing against the owner of ${Math.floor(100 * share)} % of all tokens`;
    return `${claimed} (${fake}; ${held})`;
  });
  return each.join("; ") || "nothing yet";
}

const shortly = ({ crowds }) => crowds.map(pair).join("; ") || "nothing yet";
// The δ that all crowds share is in the title, because a pair would not fit on a line.
const shuffledFact = ({ crowds }) => {
  const [{ delta } = {}] = crowds;
  return delta && crowds.every((crowd) => crowd.delta === delta)
    ? [`Shuffled ε, δ = ${delta.toExponential()}`, crowds.map(({ epsilon }) => number(epsilon)).join("; ")]
    : ["Shuffled (ε, δ)", shortly({ crowds })];
};
const pair = ({ epsilon, delta }) =>
  delta ? `(${number(epsilon)}, ${delta.toExponential()})` : `ε = ${number(epsilon)}`;

// The estimate's note, but the advice on frames, which is for who makes mechanisms, in other words.
function inPlainWords(note) {
  const rest = note.replace(FRAME_BIAS, "").replace(/; $/, "");
  return [
    note.search(FRAME_BIAS) >= 0 &&
      "Part of the error does not shrink with more messages. The error bars include it; the next campaign can avoid it by more frames.",
    rest && `${rest[0].toUpperCase()}${rest.slice(1)}.`,
  ]
    .filter(Boolean)
    .join(" ");
}

// One word for both tests, and none for a test that could not notice anything yet.
function verdict(checks) {
  const said = Object.values(checks ?? {});
  if (said.some((one) => one.startsWith("alarm: "))) return "alarm";
  return checks?.counts?.startsWith("passed") ? "passed" : "";
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
function withNewest(progress, { count: covered, stderr }, { bounds, clip }) {
  const last = progress.measured.at(-1)?.[0] ?? 0;
  if (covered <= last || !stderr || stderr.includes(null)) return progress;
  const scaled = bounds
    ? stderr.map((one, place) => (one * 2 * clip) / (bounds[place][2] - bounds[place][1]) / Math.sqrt(bounds.length))
    : stderr;
  const error = Math.sqrt(scaled.reduce((sum, one) => sum + one * one, 0));
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
