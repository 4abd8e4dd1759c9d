// Envelopes for shuffled campaigns: every message sealed for the collector, so that the shuffler cannot read it.
//
// sstq.js imports this file when a campaign is shuffled. HPKE (RFC 9180) in base mode, on WebCrypto: DHKEM(X25519,
// HKDF-SHA256), HKDF-SHA256, AES-128-GCM. docs/client-specification.md has the format, clients/vectors examples.

const KEY_BYTES = 32, TAG_BYTES = 16, NAME_BYTES = 8;

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

/** What an envelope is bound to: the campaign, its mechanism and the slot. */
export function envelopeInfo(name, digest, slot) {
  const number = new Uint8Array(4);
  new DataView(number.buffer).setUint32(0, slot);
  return joined([utf8(`sstq-envelope-v1\0${name}\0`), fromHex(digest), number]);
}

const nameOf = async (key) => toHex(new Uint8Array(await crypto.subtle.digest("SHA-256", key)).slice(0, NAME_BYTES));

async function isSealingKey(entry) {
  return isHex(entry?.key, KEY_BYTES) && entry.id === (await nameOf(fromHex(entry.key)));
}

/** What a campaign says of its shuffler; `stated` reads its members one by one. */
export async function readShuffling(stated, mechanism) {
  const { data } = stated, keys = data.sealing_keys;
  const terms = new stated.constructor(stated.must("shuffling", true), "shuffling", "campaign");
  const { url, key } = terms.data;
  stated.must("closes", data.closes !== undefined, "a time where messages are shuffled");
  stated.option("senders", "everybody", "single-use");
  stated.option("slots", mechanism.messages);
  stated.option("envelope_bytes", KEY_BYTES + Math.ceil(mechanism.messageBits / 8) + TAG_BYTES);
  const areKeys = Array.isArray(keys) && keys.length > 0 && (await Promise.all(keys.map(isSealingKey))).every(Boolean);
  stated.must("sealing_keys", areKeys, "public keys with their names");
  const isAddress = typeof url === "string" && /^https?:\/\/[!-~]{1,990}$/.test(url) && !/[?#]|\/$/.test(url);
  const found = {
    url: terms.must("url", isAddress, "the shuffler's address"),
    key: terms.must("key", isHex(key, KEY_BYTES), "64 hexadecimal digits"),
    threshold: terms.integer("threshold", 2, 1e9),
    delta: terms.number("delta", 1e-15, 0.1),
    belowThreshold: terms.option("below_threshold", "drop", "local"),
    sealingKey: keys[0].key,
  };
  terms.done();
  return Object.freeze(found);
}

/**
 * Where to send, and what makes the bodies of uploads.
 *
 * First it checks that the shuffler has signed the same document as the collector, so that nobody is given a sealing
 * key of their own, and that sealing works here.
 */
export async function openSealer(campaign, answer, { fail, get, isSigned }) {
  const { name, digest, mechanism, mostMessages, shuffling } = campaign, header = "SSTQ-Shuffler-Signature";
  const address = `${shuffling.url}/v1/campaigns/${name}`;
  const { content, headers } = answer.headers.has(header) ? answer : await get(address);
  if (toHex(content) !== toHex(answer.content))
    fail("campaign", "the shuffler has another document than the collector; try again in a minute");
  if (!(await isSigned(content, headers.get(header), shuffling.key, "sstq-shuffler-v1\0")))
    fail("signature", `${shuffling.url} is not the shuffler that the campaign names; nothing was sent`);

  const publicKey = fromHex(shuffling.sealingKey), keyName = fromHex(await nameOf(publicKey));
  const infos = Array.from({ length: mechanism.messages }, (_, slot) => envelopeInfo(name, digest, slot));
  try {
    await seal(new Uint8Array(0), publicKey, infos[0]);
  } catch (error) {
    if (error.name !== "NotSupportedError") fail("campaign", "the sealing key is none of X25519; nothing was sent");
    fail("crypto", "X25519 is missing: take Chrome 137, Firefox 130, Safari 17, Node 20 or newer");
  }

  /** Bodies with the number of people in each, for messages that come slot by slot. */
  const bodies = async (messages) => {
    const slots = infos.length, people = messages.length / slots, found = [];
    if (!Number.isInteger(people))
      fail("argument", `messages must be ${slots} per person, slot by slot, got ${messages.length}`);
    for (let start = 0; start < people; start += mostMessages) {
      const end = Math.min(start + mostMessages, people), parts = [keyName];
      for (let person = start; person < end; person++)
        for (let slot = 0; slot < slots; slot++)
          parts.push(await seal(mechanism.pack([messages[slot * people + person]]), publicKey, infos[slot]));
      found.push([joined(parts), end - start]);
    }
    return found;
  };
  return { address, bodies };
}
