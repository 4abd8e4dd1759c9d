// Envelopes for shuffled campaigns: every message sealed for the collector, so that the shuffler cannot read it, and
// the envelopes of a person in a cover for the shuffler, so that nobody else can use them.
//
// sstq.js imports this file when a campaign is shuffled. HPKE (RFC 9180) in base mode, on WebCrypto: DHKEM(X25519,
// HKDF-SHA256), HKDF-SHA256, AES-128-GCM. docs/client-specification.md has the format, clients/vectors examples.

const KEY_BYTES = 32, TAG_BYTES = 16;

const utf8 = (text) => new TextEncoder().encode(text);
const fromHex = (text) => Uint8Array.from(text.match(/../g), (pair) => parseInt(pair, 16));
const toHex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
const isHex = (text, bytes) => typeof text === "string" && text.length === 2 * bytes && /^[0-9a-f]*$/.test(text);

function joined(parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let place = 0;
  for (const part of parts) {
    whole.set(part, place);
    place += part.length;
  }
  return whole;
}

// ---- HPKE

const VERSION = utf8("HPKE-v1");
const KEM = [...utf8("KEM"), 0, 0x20];
const HPKE = [...utf8("HPKE"), 0, 0x20, 0, 1, 0, 1];
const NO_SALT = new Uint8Array(KEY_BYTES); // WebCrypto takes no empty key for HMAC; zeros are the same

async function hmac(key, parts) {
  const { subtle } = crypto;
  const imported = await subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return new Uint8Array(await subtle.sign("HMAC", imported, joined(parts)));
}

/** LabeledExtract of section 4. */
const extract = (salt, suite, label, secret) => hmac(salt, [VERSION, suite, utf8(label), secret]);

/** LabeledExpand of section 4 for at most 32 bytes, which is one block of HKDF. */
async function expand(key, suite, label, info, length) {
  return (await hmac(key, [[0, length], VERSION, suite, utf8(label), info, [1]])).subarray(0, length);
}

/** The encapsulated key, and the key and the nonce of the one message: sections 4.1 and 5.1. */
export async function keySchedule(publicKey, info, ephemeral) {
  const { subtle } = crypto, name = "X25519";
  const pair = ephemeral ?? (await subtle.generateKey({ name }, false, ["deriveBits"]));
  const recipient = await subtle.importKey("raw", publicKey, { name }, true, []);
  const enc = new Uint8Array(await subtle.exportKey("raw", pair.publicKey));
  const shared = new Uint8Array(await subtle.deriveBits({ name, public: recipient }, pair.privateKey, 256));
  const extracted = await extract(NO_SALT, KEM, "eae_prk", shared);
  const secret = await expand(extracted, KEM, "shared_secret", joined([enc, publicKey]), KEY_BYTES);

  const noPsk = await extract(NO_SALT, HPKE, "psk_id_hash", []);
  const context = joined([[0], noPsk, await extract(NO_SALT, HPKE, "info_hash", info)]);
  const scheduled = await extract(secret, HPKE, "secret", []);
  const key = await expand(scheduled, HPKE, "key", context, 16);
  return { enc, key, nonce: await expand(scheduled, HPKE, "base_nonce", context, 12) };
}

/** An envelope: the encapsulated key, the ciphertext and the tag. Only tests give the ephemeral key. */
export async function seal(message, publicKey, info, ephemeral) {
  const { enc, key, nonce } = await keySchedule(publicKey, info, ephemeral), { subtle } = crypto;
  const imported = await subtle.importKey("raw", key, "AES-GCM", false, ["encrypt"]);
  const sealed = await subtle.encrypt({ name: "AES-GCM", iv: nonce, tagLength: 8 * TAG_BYTES }, imported, message);
  return joined([enc, new Uint8Array(sealed)]);
}

// ---- Campaigns

/** What an envelope is bound to: the crowd and the slot. */
export function envelopeInfo(crowd, slot) {
  const number = new Uint8Array(4);
  new DataView(number.buffer).setUint32(0, slot);
  return joined([utf8("sstq-envelope-v2\0"), crowd, number]);
}

/** What a cover is bound to: the crowd. */
export const coverInfo = (crowd) => joined([utf8("sstq-cover-v2\0"), crowd]);

/** The crowd of all who agreed to the same and sealed for the same key of the collector. */
async function crowdOf({ name, digest, senders, shuffling, sealing_keys: keys }, canonical) {
  const agreed = utf8(canonical({ name, digest, senders, shuffling }));
  return toHex(new Uint8Array(
    await crypto.subtle.digest("SHA-256", joined([utf8("sstq-crowd-v2\0"), fromHex(keys[0]), agreed])),
  ));
}

/** What a campaign says of its shuffler; `stated` reads its members one by one. */
export async function readShuffling(stated, mechanism, canonical) {
  const { data } = stated, keys = data.sealing_keys;
  const terms = new stated.constructor(stated.must("shuffling", true), "shuffling", "campaign");
  const { url } = terms.data, key = (name) => terms.must(name, isHex(terms.data[name], KEY_BYTES), "64 hexadecimal digits");
  stated.must("closes", data.closes !== undefined, "a time where messages are shuffled");
  stated.option("senders", "everybody", "single-use");
  stated.option("most_messages", 1);
  stated.option("slots", mechanism.messages);
  stated.option("envelope_bytes", KEY_BYTES + Math.ceil(mechanism.messageBits / 8) + TAG_BYTES);
  const areKeys = Array.isArray(keys) && keys.length > 0 && keys.every((key) => isHex(key, KEY_BYTES));
  stated.must("sealing_keys", areKeys, "public keys");
  const isAddress = typeof url === "string" && /^https?:\/\/[!-~]{1,990}$/.test(url) && !/[?#]|\/$/.test(url);
  const shuffling = {
    url: terms.must("url", isAddress, "the shuffler's address"),
    key: key("key"),
    coverKey: key("sealing_key"),
    threshold: terms.integer("threshold", 2, 1e9),
    delta: terms.number("delta", 1e-15, 0.1),
    belowThreshold: terms.option("below_threshold", "drop", "local"),
    sealingKey: keys[0],
    crowd: await crowdOf(data, canonical),
  };
  terms.done();
  return Object.freeze(shuffling);
}

/**
 * What makes the bodies of uploads.
 *
 * First it checks that both keys are pinned, that the shuffler is where the client was told and has signed the same
 * document as the collector, so that nobody is given a sealing key or an address of their own, and that sealing works.
 */
export async function openSealer({ mechanism, shuffling, senders }, { content, headers }, wanted) {
  const { address, pinnedKey, pinnedShuffler, leastThreshold, fail, isSigned } = wanted;
  if (pinnedKey === undefined || pinnedShuffler === undefined)
    fail("argument", "a shuffled campaign needs pinnedKey and pinnedShuffler, or a link that has them; nothing was sent");
  if (shuffling.key !== pinnedShuffler)
    fail("signature", `the campaign has another shuffler than the pinned one: ${shuffling.key}; nothing was sent`);
  if (shuffling.url !== address)
    fail("campaign", `the campaign's shuffler is at ${shuffling.url}, not at ${address}; nothing was sent`);
  const least = shuffling.belowThreshold === "drop" ? shuffling.threshold : 1;
  if (leastThreshold !== undefined && !(least >= leastThreshold))
    fail("campaign", `the campaign forwards crowds of ${least} people, fewer than ${leastThreshold}; nothing was sent`);
  if (leastThreshold !== undefined && senders === "everybody")
    fail("campaign", "leastThreshold protects nobody where everybody may send: one party may be all the others of a " +
      "crowd; nothing was sent");
  if (!(await isSigned(content, headers.get("SSTQ-Shuffler-Signature"), shuffling.key, "sstq-shuffler-v2\0")))
    fail("signature", `${address} is not the shuffler that the campaign names; nothing was sent`);

  const [inner, outer, crowd] = [shuffling.sealingKey, shuffling.coverKey, shuffling.crowd].map(fromHex);
  const infos = Array.from({ length: mechanism.messages }, (_, slot) => envelopeInfo(crowd, slot));
  const person = async (messages) => {
    const envelopes = [];
    for (const [slot, message] of messages.entries()) envelopes.push(await seal(message, inner, infos[slot]));
    return joined([crowd, await seal(joined(envelopes), outer, coverInfo(crowd))]);
  };
  try {
    await person([new Uint8Array(0)]);
  } catch (error) {
    if (error.name !== "NotSupportedError") fail("campaign", "a sealing key is none of X25519; nothing was sent");
    fail("crypto", "X25519 is missing: take Chrome 137, Firefox 130, Safari 17, Node 20 or newer");
  }

  /** A body per person, for messages that come slot by slot. */
  const bodies = async (messages) => {
    const slots = infos.length, people = messages.length / slots, sealed = [];
    if (!Number.isInteger(people))
      fail("argument", `messages must be ${slots} per person, slot by slot, got ${messages.length}`);
    for (let place = 0; place < people; place++) {
      const theirs = infos.map((_, slot) => mechanism.pack([messages[slot * people + place]]));
      sealed.push(await person(theirs));
    }
    return sealed;
  };
  return { bodies };
}
