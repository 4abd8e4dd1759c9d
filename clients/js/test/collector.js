// A collector that is not one: it signs what it is told to, fails as it is told to, and notes what it was sent.

import { createPrivateKey, sign } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { canonical } from "../sstq.js";

const { cases, secret_key, public_key, prefix, shuffler_secret_key, shuffler_public_key, shuffler_prefix } = JSON.parse(
  readFileSync(new URL("../../vectors/campaign.json", import.meta.url), "utf8"),
);
export { public_key as publicKey, shuffler_public_key as shufflerKey };

/** The signature of a text by a secret key, in base64. */
function signed(text, secret, begin) {
  const key = Buffer.from(`302e020100300506032b657004220420${secret}`, "hex");
  const bytes = Buffer.concat([Buffer.from(begin, "hex"), Buffer.from(text)]);
  return sign(null, bytes, createPrivateKey({ key, format: "der", type: "pkcs8" })).toString("base64");
}

/** A signed document: the plain campaign of the vectors with some members changed, or left out if undefined. */
export function signedDocument(changes = {}) {
  const stated = { ...JSON.parse(cases[0].document), ...changes };
  const document = canonical(JSON.parse(JSON.stringify(stated)));
  return { document, signature: signed(document, secret_key, prefix) };
}

/** The shuffled campaign of the vectors, whose shuffler is at this address, with some members changed. */
export function shuffledDocument(url, { shuffling = {}, ...changes } = {}) {
  const stated = JSON.parse(cases.find(({ about }) => about === "shuffled").document);
  const terms = { ...stated.shuffling, url, ...shuffling };
  const found = signedDocument({ ...stated, name: "steps", shuffling: terms, ...changes });
  return { ...found, shufflerSignature: signed(found.document, shuffler_secret_key, shuffler_prefix) };
}

/**
 * Run `use` with the address of a campaign and the requests that arrive. `answers` are what comes before success: a
 * status, or an object {status, headers}, or "hang up", or "success"; `allowance` is the answer to who asks what may be
 * sent; `document` may be a function, which is called at each request. `shuffled` makes the document of a shuffler, which is at the same address under /people, from that address; then
 * `use` gets the campaign's address at the shuffler.
 */
export async function withCollector(use, options = {}) {
  const { document = signedDocument(), shuffled, answers = [], receipt, allowance = {} } = options;
  const requests = [], waiting = [...answers];
  const server = createServer(async (request, response) => {
    const chunks = await request.toArray();
    const { method, headers: sent, url: path } = request;
    requests.push({ method, path, headers: sent, body: Buffer.concat(chunks).toString("hex") });
    if (method === "GET" && path.endsWith("/messages"))
      return response.writeHead(allowance.status ?? 200, allowance.headers).end(allowance.content ?? '{"messages":null}');
    if (method === "GET") {
      const stated = typeof document === "function" ? document() : document;
      const { document: text, signature, shufflerSignature } = shuffled?.(`http://${sent.host}/people`) ?? stated;
      const own = shufflerSignature ? { "SSTQ-Shuffler-Signature": shufflerSignature } : {};
      return response.writeHead(200, { "SSTQ-Signature": signature, ...own }).end(text);
    }
    const answer = waiting.shift();
    if (answer === "hang up") return request.socket.destroy();
    if (answer === undefined || answer === "success")
      return response.end(receipt ?? `{"count":${request.headers["sstq-count"]}}`);
    const { status = answer, headers = {} } = answer;
    return response.writeHead(status, headers).end(JSON.stringify({ status, detail: `status “${status}”` }));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    const place = shuffled ? "/people/steps" : "/steps";
    return await use(`http://127.0.0.1:${server.address().port}${place}`, requests);
  } finally {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
}
