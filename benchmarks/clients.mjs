// Times of the JavaScript encoder in Node: reads JSON texts of mechanisms, writes seconds: the first message's, those of
// warm repeats, and the processor's per repeat, which busy neighbours do not change.

import { readFileSync } from "node:fs";
import { Mechanism } from "../clients/js/sstq.js";

const WARM_UP = 30, REPEATS = 50;

const seconds = JSON.parse(readFileSync(0, "utf8")).map((json) => {
  const mechanism = new Mechanism(json), group = mechanism.groups === null ? undefined : 3;
  const x = Float32Array.from({ length: mechanism.dim }, () => Math.random() - 0.5);
  const begun = performance.now();
  mechanism.encode(x, group);
  const first = (performance.now() - begun) / 1000;
  for (let i = 0; i < WARM_UP; i++) mechanism.encode(x, group);
  const used = process.cpuUsage();
  const warm = Array.from({ length: REPEATS }, () => {
    const start = performance.now();
    mechanism.encode(x, group);
    return (performance.now() - start) / 1000;
  });
  const { user, system } = process.cpuUsage(used);
  return { first, warm, processor: (user + system) / 1e6 / REPEATS };
});
console.log(JSON.stringify(seconds));
