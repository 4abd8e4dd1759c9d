// The pictures of the poll: one panel per question with its intervals, and what another ε would do.

export const whole = new Intl.NumberFormat("en");
export const percent = (share) => (share === null ? "–" : `${(100 * share).toFixed(0)} %`);
const short = (value) => (value === null ? "–" : String(Number(value.toPrecision(3))));

export function element(name, properties = {}, ...children) {
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

/** A bar says nothing as long as its interval reaches zero, or is not known. */
const isPale = ({ low }, i) => !(low[i] > 0);
const clamp = (share) => Math.min(Math.max(share, 0), 1);
const diamond = (x, y) => drawn("path", { class: "truth", d: `M${x} ${y - 6}l6 6l-6 6l-6 -6z` });

/** Bars that lie under their labels; `found` has items, estimate, low and high. */
function lyingBars(found, truth, width) {
  const step = 44, height = found.items.length * step + 20, place = (share) => clamp(share) * (width - 12);
  const svg = drawn("svg", { viewBox: `-6 0 ${width} ${height}`, role: "img", "aria-label": "Share of each answer" });
  for (const tick of [0, 0.25, 0.5, 0.75, 1]) {
    svg.append(drawn("line", { class: "axis", x1: place(tick), x2: place(tick), y1: 0, y2: height - 20 }));
    const anchor = tick === 0 ? "start" : tick === 1 ? "end" : "middle";
    svg.append(drawn("text", { class: "tick", x: place(tick), y: height - 4, "text-anchor": anchor }, percent(tick)));
  }
  found.items.forEach((label, i) => {
    const y = i * step + 30, { estimate, low, high } = found;
    svg.append(drawn("text", { x: 0, y: y - 14 }, label));
    if (estimate[i] !== null) {
      const kind = isPale(found, i) ? "bar pale" : "bar";
      svg.append(drawn("rect", { class: kind, x: 0, width: place(estimate[i]), y: y - 8, height: 16, rx: 3 }));
    }
    if (low[i] !== null) {
      const [from, to] = [low[i], high[i]].map(place);
      svg.append(drawn("path", { class: "error", d: `M${from} ${y}H${to}M${from} ${y - 5}v10M${to} ${y - 5}v10` }));
    }
    if (truth) svg.append(diamond(place(truth[i]), y));
  });
  return svg;
}

/** A histogram with the median and its interval. */
function histogram(found, truth, width) {
  const { estimate, low, high, edges, quantiles } = found, height = 190, base = height - 24;
  const top = Math.max(0.1, ...high.map((end, i) => Math.min(end ?? 0, 2 * (estimate[i] ?? 0) + 0.1)));
  const across = (value) => ((value - edges[0]) / (edges.at(-1) - edges[0])) * (width - 12);
  const up = (share) => base - (clamp(share / top) * (base - 8));
  const svg = drawn("svg", { viewBox: `-6 0 ${width} ${height}`, role: "img", "aria-label": "Share of each range" });
  const median = quantiles.find(({ share }) => share === 0.5);
  if (median.value !== null) {
    const [from, to] = [median.low, median.high].map(across);
    svg.append(drawn("rect", { class: "band", x: from, width: to - from, y: 0, height: base }));
  }
  estimate.forEach((share, i) => {
    const [from, to] = [across(edges[i]) + 1, across(edges[i + 1]) - 1], x = (from + to) / 2;
    const kind = isPale(found, i) ? "bar pale" : "bar";
    if (share !== null)
      svg.append(drawn("rect", { class: kind, x: from, width: to - from, y: up(share), height: base - up(share) }));
    if (low[i] !== null) svg.append(drawn("path", { class: "error", d: `M${x} ${up(low[i])}V${up(high[i])}` }));
    if (truth) svg.append(diamond(x, up(truth[i])));
  });
  if (median.value !== null)
    svg.append(drawn("line", { class: "median", x1: across(median.value), x2: across(median.value), y1: 0, y2: base }));
  svg.append(drawn("line", { class: "axis", x1: 0, x2: width - 12, y1: base, y2: base }));
  for (const part of [0, 0.25, 0.5, 0.75, 1]) {
    const value = edges[0] + part * (edges.at(-1) - edges[0]);
    const anchor = part === 0 ? "start" : part === 1 ? "end" : "middle";
    svg.append(drawn("text", { class: "tick", x: across(value), y: height - 6, "text-anchor": anchor }, short(value)));
  }
  return svg;
}

function table({ items, estimate, low, high }) {
  const head = ["", "Share", "95 %"].map((text) => element("th", { scope: "col" }, text));
  const rows = items.map((label, i) => {
    const interval = low[i] === null ? "–" : `${percent(low[i])} to ${percent(high[i])}`;
    const cells = [percent(estimate[i]), interval].map((text) => element("td", {}, text));
    return element("tr", {}, element("th", { scope: "row" }, label), ...cells);
  });
  return element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
}

/** One question: its picture, and the same numbers as a table, open if it was. */
export function panel(found, truth, width, open = false) {
  const { name, count, quantiles, edges } = found, known = found.estimate.some((share) => share !== null);
  const median = quantiles?.find(({ share }) => share === 0.5);
  const between = median?.value != null ? ` Median ${short(median.value)}, between ${short(median.low)} and ${short(median.high)}.` : "";
  const told = known ? "" : " Too few for an estimate.";
  const drawing = edges ? histogram : lyingBars;
  const details = element("details", { open }, element("summary", {}, "As a table"), table(found));
  return element(
    "section",
    { className: "panel" },
    element("h3", {}, name),
    element("p", { className: "soft" }, `${whole.format(Math.round(count))} ${count === 1 ? "answer" : "answers"}.${told}${between}`),
    drawing(found, truth, width),
    details,
  );
}

// What another ε would do

function primeAtLeast(number) {
  const isPrime = (n) => n > 1 && !Array.from({ length: n - 2 }, (_, i) => i + 2).some((divisor) => n % divisor === 0);
  while (!isPrime(number)) number++;
  return number;
}

/** How often the set of categories that is sent holds the own one, and any other one, by the best sets for this ε. */
function hitRates(epsilon, categories) {
  const odds = Math.exp(epsilon), prime = primeAtLeast(categories), wide = Math.max(1, Math.floor(prime / (odds + 1)));
  const sets = [[categories, 1], ...[wide, wide + 1].filter((w) => w < prime).map((w) => [prime, w])];
  const rates = sets.map(([size, w]) => {
    const own = (odds * w) / (odds * w + size - w);
    return [own, (w - own) / (size - 1)];
  });
  const variance = ([own, other]) => (other * (1 - other)) / (own - other) ** 2;
  return rates.reduce((best, one) => (variance(one) < variance(best) ? one : best));
}

/** A question's estimate from so many answers at this ε: the law of its message, with normal numbers for sums. */
export function simulated(name, items, shares, answers, epsilon, normals) {
  const [own, other] = hitRates(epsilon, items.length + 1), gap = own - other, z = 2.57; // 95 % for five bars at once
  const rates = shares.map((share) => other + share * gap);
  const errors = rates.map((rate) => Math.sqrt((rate * (1 - rate)) / answers) / gap);
  const estimate = shares.map((share, i) => share + normals[i] * errors[i]);
  const ends = (sign) => estimate.map((share, i) => clamp(share + sign * z * errors[i]));
  return { name, items, count: answers, estimate, low: ends(-1), high: ends(1) };
}
