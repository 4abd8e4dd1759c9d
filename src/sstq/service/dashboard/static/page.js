// What all parts of the page use: its elements, changed only where they differ, and numbers for people.

export const at = (id) => document.getElementById(id);

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
export const count = (value) => whole.format(value);
export const compact = (value) => short.format(value);
export const number = (value) => {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e9 || size < 1e-4) return value.toExponential(2).replace("-", "−");
  const rounded = Number(value.toPrecision(4));
  return (size < 1e4 ? rounded.toString() : whole.format(rounded)).replace("-", "−");
};

export const percent = (share) => (share === null ? "–" : `${number(100 * share)} %`);

export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// An unchanged text stays as it is: a screen reader would read it again.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setFacts(list, facts) {
  if (list.children.length !== facts.length)
    list.replaceChildren(...facts.map(() => element("div", {}, element("dt"), element("dd"))));
  facts.forEach(([term, value], place) => {
    const [name, text] = list.children[place].children;
    setText(name, term);
    setText(text, value);
  });
}
