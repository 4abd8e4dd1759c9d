// The panels of a survey: bars with intervals for choices, a histogram with its median for numbers, means for the rest.

import { count, number, percent } from "./page.js";

const MOST_BARS = 60;
const SHARES = ["choice", "multichoice", "number", "count"];
const isKnown = ({ estimate }) => estimate.some((value) => value !== null);
const within = (value, [low, high]) => Math.min(Math.max(value, low), high);

// An interval says nothing about a share as long as it reaches zero, about a mean of vectors as long as it holds zero,
// and about a mean of numbers as long as it reaches both ends of their range.
function saysNothing({ type, low, high, limits }, place) {
  const [from, to] = [low[place], high[place]];
  if (from === null || to === null) return true;
  if (SHARES.includes(type)) return from <= 0;
  return limits[0] === null ? from <= 0 && to >= 0 : from <= limits[0] && to >= limits[1];
}

// The items to draw: all, or those that are farthest from nothing, in their own order.
function drawn(question) {
  const places = question.items.map((_, place) => place);
  if (question.edges || places.length <= MOST_BARS) return places;
  const weight = (place) => Math.abs(question.estimate[place] ?? 0) / (question.stderr[place] || 1);
  return places
    .sort((one, other) => weight(other) - weight(one))
    .slice(0, MOST_BARS)
    .sort((one, other) => one - other);
}

// The interval of the median is less than the whole range.
function tellsMedian({ type, quantiles, edges }) {
  const { value, low, high } = quantiles.find(({ share }) => share === 0.5);
  // Whole numbers have bars around them.
  const range = edges.at(-1) - edges[0] - Number(type === "count");
  return value !== null && high - low < range;
}

// A sentence or two: how many answered, and what a number's centre is.
export function summary(question) {
  const { count: answers, over, answered, items, mean, quantiles } = question;
  const messages = `${count(answers)} ${answers === 1 ? "message" : "messages"}`;
  if (!isKnown(question)) return `${messages}: too few for an estimate.`;
  const share = answered === null ? "" : ` (about ${Math.round(100 * within(answered, [0, 1]))} % of people)`;
  const told = [`${messages}, over ${over === "people" ? "all people" : `those who have an answer${share}`}.`];
  const between = ({ value, low, high }) =>
    `${number(within(value, [low, high]))} (${number(low)} to ${number(high)})`;
  if (question.type === "mean" && question.low[0] !== null)
    told.push(`Mean ${between({ value: question.estimate[0], low: question.low[0], high: question.high[0] })}.`);
  if (mean) {
    const [first, median, third] = quantiles;
    if (tellsMedian(question))
      told.push(`Median ${between(median)}, quartiles ${number(first.value)} and ${number(third.value)}.`);
    if (mean.value !== null && mean.low !== null) told.push(`Mean ${between(mean)}.`);
    // Half a bin on each side belongs to it.
    else if (mean.low !== null) told.push(`Mean between ${number(mean.low)} and ${number(mean.high)}.`);
  }
  if (items.length > MOST_BARS && !question.edges)
    told.push(`The ${MOST_BARS} that stand out most are shown; all ${count(items.length)} are in the table and the CSV.`);
  return told.join(" ");
}

// Draw a question into its figure.
export function drawQuestion(figure, question) {
  const { items, type, estimate, low, high, quantiles, edges } = question, places = drawn(question);
  const picked = (values) => places.map((place) => values[place]);
  const ends = places.map((place) => (low[place] === null ? null : [low[place], high[place]]));
  const isShare = SHARES.includes(type), what = isShare ? "share of answers" : "mean";
  const median = quantiles?.find(({ share }) => share === 0.5);
  figure.tell(summary(question), isKnown(question));
  figure.bars(picked(items), [{ label: isShare ? "Share" : "Mean", values: picked(estimate), ends }], what, {
    pale: places.map((place) => saysNothing(question, place)),
    standing: Boolean(edges),
    band: edges && tellsMedian(question) ? { ...median, edges } : null,
    limits: isShare ? [0, 1] : null,
  });
  const written = isShare ? percent : number;
  figure.rows(
    ["", isShare ? "Share" : "Mean", "Low", "High"],
    items.map((item, place) => [item, written(estimate[place]), written(low[place]), written(high[place])]),
  );
  figure.describe(`${summary(question)} The table below has all bars.`);
}
