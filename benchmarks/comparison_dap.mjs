// The size of one report of Divvi Up's client, and the time to make it. Nothing is sent: keys are made here.
//
//     node comparison_dap.mjs FOLDER ITEMS DIMENSIONS    (npm install @divviup/dap in FOLDER)
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, items, dimensions] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const packages = join(folder, "node_modules");
const load = (path) => import(pathToFileURL(join(packages, path)));
const { Task, HpkeConfig } = await load("@divviup/dap/dist/index.js");
const { CipherSuite, KemId, KdfId, AeadId } = createRequire(join(packages, "x"))("hpke-js");
const { version } = JSON.parse(readFileSync(join(packages, "@divviup/dap/package.json"), "utf8"));

const suite = new CipherSuite({ kem: KemId.DhkemX25519HkdfSha256, kdf: KdfId.HkdfSha256, aead: AeadId.Aes128Gcm });
const { publicKey } = await suite.kem.generateKeyPair();
const key = Buffer.from(await suite.kem.serializePublicKey(publicKey));
const config = new HpkeConfig(1, KemId.DhkemX25519HkdfSha256, KdfId.HkdfSha256, AeadId.Aes128Gcm, key).encode();
const list = Buffer.concat([Buffer.from([config.length >> 8, config.length & 255]), config]);

async function report(spec, measurement) {
  const servers = { leader: "https://leader.invalid", helper: "https://helper.invalid" };
  const task = new Task({ ...servers, ...spec, id: Buffer.alloc(32), timePrecisionSeconds: 3600 });
  task.fetch = async () => new Response(list, { headers: { "Content-Type": "application/dap-hpke-config-list" } });
  await task.generateReport(measurement);
  const start = process.cpuUsage();
  const bytes = (await task.generateReport(measurement)).encode().length;
  const { user, system } = process.cpuUsage(start);
  return { bytes, client_ms: (user + system) / 1000 };
}

// The chunk length that the VDAF draft advises: near the square root of the number of gadget inputs.
const chunk = (inputs) => Math.round(Math.sqrt(inputs));
const sumVec = (bits) =>
  report(
    { type: "sumVec", length: dimensions, bits, chunkLength: chunk(dimensions * bits) },
    new Array(dimensions).fill(1),
  );
console.log(JSON.stringify({
  version,
  histogram: await report({ type: "histogram", length: items, chunkLength: chunk(items) }, 3),
  vector: await sumVec(16),
  signs: await sumVec(1),
}));
