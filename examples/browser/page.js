// What both tabs have: their elements, problems, the look, the tokens of the link, and the request that leaves.

export const at = (id) => document.getElementById(id);

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text; // a screen reader would read it again
}

export function showProblem(text) {
  setText(at("problem"), text.charAt(0).toUpperCase() + text.slice(1));
  at("problem").hidden = false;
}

export function complain(error) {
  console.warn(error);
  showProblem(`${error.message}.`);
}

/** How the client asks: a visitor looks at the page meanwhile, so it gives up soon. */
export const ASKING = {
  patience: 30,
  timeout: 20,
  onRetry: (error, seconds) => showProblem(`${error.message}. Next try in ${Math.ceil(seconds)} s.`),
};

/** Do something while its button is disabled, and say what went wrong. */
export async function during(button, work) {
  button.disabled = true;
  at("problem").hidden = true;
  try {
    await work();
    at("problem").hidden = true;
  } catch (error) {
    complain(error);
  }
  button.disabled = false;
}

/** The token of this name for simulated visitors, which who runs the collector has in the link of the page. */
export const tokenOf = (name) => new URLSearchParams(location.hash.slice(1)).get(name);

/** Do something; calls `tell` with the last upload that the browser made meanwhile, if any. */
export async function recorded(work, tell) {
  const ask = window.fetch;
  let request;
  window.fetch = (url, options) => {
    if (options.method === "POST") request = { url: new URL(url), ...options };
    return ask(url, options);
  };
  try {
    return await work();
  } finally {
    window.fetch = ask;
    if (request) tell(request);
  }
}

export function showRequest({ url, method, headers, body }) {
  const bytes = Array.from(body, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
  const head = [`${method} ${url.pathname}`, ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`)];
  at("request").textContent = [...head, "", `${bytes}   (${body.length} bytes)`].join("\n");
  at("sent-none").hidden = true;
  at("sent").hidden = false;
}

/** As wide as there is room, so that text has its natural size on a phone. */
export const widthOf = (id) => Math.max(260, Math.round(at(id).clientWidth));

function setLook(look) {
  document.documentElement.dataset.look = look;
  at("look").textContent = look === "dark" ? "Light look" : "Dark look";
}

setLook(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
at("look").addEventListener("click", () =>
  setLook(document.documentElement.dataset.look === "dark" ? "light" : "dark"),
);
for (const tab of document.querySelectorAll(".tabs a")) tab.hash = location.hash;
