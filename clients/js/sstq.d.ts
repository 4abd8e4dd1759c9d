import type { Question as StudyQuestion } from "./studies.js";

/** What went wrong. */
export declare class SstqError extends Error {
  /**
   * - `argument`: an argument is wrong; the message says which and what it must be.
   * - `mechanism`, `campaign`: the collector asks for what this module does not know, or for more than it says.
   * - `signature`: the campaign is not signed by the keys of the collector and of the shuffler that it names.
   * - `epsilon`: the campaign asks for more than `mostEpsilon`.
   * - `time`: the campaign is not open yet, or closed.
   * - `ledger`: the budget is spent, or the ledger cannot be used. Nothing was spent or sent.
   * - `outbox`: the outbox cannot be used. Nothing was spent or sent.
   * - `waiting`: earlier messages wait in the outbox; call `sendWaiting` first. Nothing was spent or sent.
   * - `refused`: the collector or the shuffler, which the message names, refused it; see `status`.
   * - `unreachable`: there was no answer in time.
   * - `module`: `sealing.js` or `node-files.js`, which only some need, does not lie beside `sstq.js`.
   * - `crypto`: WebCrypto, Ed25519 or, for a shuffled campaign, X25519 is missing.
   * - `document`: the question of a study is out of bounds, or of a stage that is over.
   */
  readonly code:
    | "argument"
    | "mechanism"
    | "campaign"
    | "signature"
    | "epsilon"
    | "time"
    | "ledger"
    | "outbox"
    | "waiting"
    | "refused"
    | "unreachable"
    | "module"
    | "crypto"
    | "document";
  /** The HTTP status of a refusal. */
  readonly status?: number;
  /** After how many seconds the collector asks to try again; 0 if it does not say. */
  readonly retryAfter?: number;
  /** How many messages wait in the outbox, where `send` or `sendWaiting` failed; absent if they were refused for good. */
  readonly waiting?: number;
  /** With the code `ledger`: whether the purpose was spent already, or what is left is not enough. */
  readonly reason?: "spent" | "exhausted";
}

/** Numbers that are rounded to float32; finite, one per dimension. */
export type Vector = ArrayLike<number>;

/** The values of a message's fields, in the order of `Mechanism.fields`; a `bigint` where `limit` is one. */
export type Message = (number | bigint)[];

/** Unsigned integers below `limit` ≤ 2^`bits`; a limit above 2^53 is a `bigint`. */
export interface Field {
  readonly name: string;
  readonly bits: number;
  readonly limit: number | bigint;
}

/** A question of a survey, as its JSON has it. */
export type Question = { readonly name: string } & (
  | { readonly type: "choice" | "multichoice"; readonly labels: readonly string[] | readonly number[] }
  | { readonly type: "number"; readonly low: number; readonly high: number; readonly bins: number }
  | { readonly type: "count"; readonly most: number }
  | { readonly type: "vector"; readonly dim: number; readonly clip: number }
  | { readonly type: "mean"; readonly value: string }
  | { readonly type: "by"; readonly group: string; readonly value: string }
);

/**
 * One person's answers by the names of the questions: a label, a list or set of labels, a number or a vector; null for no
 * answer. Questions of type `by` and `mean` have no value of their own.
 */
export type PersonRecord = Readonly<Record<string, string | number | Iterable<string | number> | Vector | null>>;

/** The canonical form (RFC 8785) of a value that `JSON.parse` returned. */
export declare function canonical(value: unknown): string;

/**
 * A randomizer of vectors (FrameUnit, GroupUnit, or SSTQ with the flat channel), of categories (Frequencies) or of
 * answers (Survey). What it encodes is a vector, a category or a record.
 */
export declare class Mechanism {
  /** Read the JSON of a mechanism; an SstqError if it is not one, or if its draw is not ε-LDP as it says. */
  constructor(json: string | object);
  readonly name: "frameunit" | "groupunit" | "sstq" | "frequencies" | "survey";
  /** The numbers of a vector; null without vectors. */
  readonly dim: number | null;
  /** ε of one message. */
  readonly epsilon: number;
  /** How many messages a person sends, each drawn by itself: one per slot of a shuffler; 1 without. */
  readonly messages: number;
  /** What all messages of a person spend if somebody can tell that they are of one person: `messages` times ε. */
  readonly bundleEpsilon: number;
  /** Longer vectors are scaled down to this length; null without vectors. */
  readonly clip: number | null;
  /** The number of private groups; null without groups. */
  readonly groups: number | null;
  /** The number of categories of Frequencies; null for others. */
  readonly categories: number | null;
  /** The questions of a survey; null for others. */
  readonly questions: readonly Question[] | null;
  readonly fields: readonly Field[];
  readonly messageBits: number;
  /** How many random 64-bit words a message takes, whatever its vector. */
  readonly wordsEach: number;
  /** The canonical form. */
  readonly json: string;
  /** The SHA-256 of the canonical form, in hexadecimal. */
  digest(): Promise<string>;
  /**
   * One private message, with randomness from `crypto.getRandomValues`; `group` where the mechanism has groups. Of a
   * mechanism with several `messages` it is the message of one slot: call it once per slot. Of a survey a record must
   * have a value of the right type, or null, for every question; unknown labels are no answer, and numbers beyond the
   * bounds are moved to them.
   */
  encode(value: Vector | number | PersonRecord, group?: number): Message;
  /**
   * The same for whoever answers a server, who sees a refusal: numbers that are not finite, and a group that does not
   * exist, are encoded as the zero vector, the latter in a group drawn uniformly; a category that does not exist is drawn
   * uniformly; whatever does not fit a question is no answer. Only a wrong length, or what is no record, is refused.
   */
  answer(value: Vector | number | PersonRecord, group?: number): Message;
  /** The message that these words give: for tests and audits. It is private only if nobody knows the words. */
  encodeWithWords(value: Vector | number | PersonRecord, group: number | undefined, words: BigUint64Array): Message;
  /** The values of several people as a list, or of one as a list of one. */
  people(values: unknown): unknown[];
  /** Messages as bits without gaps. */
  pack(messages: readonly Message[]): Uint8Array;
}

/** What a campaign says of its shuffler. */
export interface Shuffling {
  /** The shuffler's address, which is the one that the client was given. */
  readonly url: string;
  /** The shuffler's public key in hexadecimal, which is the pinned one. */
  readonly key: string;
  /** The shuffler's public key (X25519) in hexadecimal that a person's envelopes are sealed for. */
  readonly coverKey: string;
  /** How many people make a crowd; it is mixed and forwarded when the campaign has closed. */
  readonly threshold: number;
  /** The δ at which the collector reports ε. */
  readonly delta: number;
  /** What becomes of fewer people at the end: dropped, or forwarded and reported with the local ε. */
  readonly belowThreshold: "drop" | "local";
  /** The collector's public key (X25519) in hexadecimal that messages are sealed for. */
  readonly sealingKey: string;
  /** The crowd of those who agreed to the same: a SHA-256 in hexadecimal. */
  readonly crowd: string;
}

/** What a collector asks for. */
export interface Campaign {
  readonly name: string;
  readonly mechanism: Mechanism;
  /** Of the mechanism. */
  readonly digest: string;
  /** The collector's public key in hexadecimal, to be pinned from now on. */
  readonly key: string;
  readonly labels: readonly string[];
  readonly groupLabels: readonly string[];
  readonly imageShape: readonly number[];
  /** In UTC, such as 2027-01-31T18:00:00Z. */
  readonly opens: string | null;
  readonly closes: string | null;
  /** The most messages of one upload; of a shuffled campaign 1, one person. */
  readonly mostMessages: number;
  readonly senders: "everybody" | "token" | "single-use";
  readonly readers: "administrator" | "token" | "public";
  /** By whom messages are mixed before they reach the collector; null if they are sent to it directly. */
  readonly shuffling: Shuffling | null;
  /** The stage of a study that this is; null for a campaign by itself. */
  readonly stage: Stage | null;
}

/** A stage of a study: its campaign asks one cohort. */
export interface Stage {
  /** The name of the study, which is that of its link. */
  readonly study: string;
  /** From 1. */
  readonly number: number;
  /** What the cohort is called. */
  readonly name: string;
  /** The stage closes when it has so many people; null for as many as come until its end. */
  readonly people: number | null;
  /** How long a stage lasts; null without a limit. */
  readonly hours: number | null;
  readonly question: StudyQuestion;
}

/** The campaign of a document as it was transmitted, checked against its signature in base64. */
export declare function readCampaign(
  document: Uint8Array,
  signature: string | null,
  pinnedKey?: string,
): Promise<Campaign>;

export interface ClientOptions {
  /** The greatest ε of one person; a campaign whose `mechanism.bundleEpsilon` is more is refused. */
  mostEpsilon: number;
  /**
   * The collector's public key in hexadecimal, known from elsewhere. Without it, its address and TLS are trusted. A
   * shuffled campaign needs it.
   */
  pinnedKey?: string;
  /**
   * The shuffler's public key in hexadecimal, known from elsewhere. A shuffled campaign needs it; a campaign that names
   * another one, or none, is refused.
   */
  pinnedShuffler?: string;
  /** The shuffler's address, known from its operator: nothing is requested from another one, whatever the link says. */
  shufflerUrl?: string;
  /**
   * The minimum crowd, at least 2. A campaign is refused if it may forward fewer people, has no shuffler, or lets
   * everybody send: then one party may be all the others.
   */
  leastThreshold?: number;
  /** Is charged once for each call of `send` before anything leaves. */
  ledger?: Ledger;
  /** Where messages wait until they are acknowledged. By default beside the ledger; without a ledger, in memory only. */
  outbox?: Outbox;
  /** For campaigns that not everybody may send to. */
  token?: string;
  /** After how many seconds without success to give up; 300 unless given. */
  patience?: number;
  /** The first pause between two tries, in seconds; 0.5 unless given. It doubles up to 30. */
  pause?: number;
  /** After how many seconds one request without an answer is given up; 30 unless given. */
  timeout?: number;
  /** Is called before each pause with what went wrong and the seconds until the next try. */
  onRetry?: (error: SstqError, seconds: number) => void;
}

/** Sends to one campaign. */
export declare class Client {
  /**
   * Fetch and check the campaign at an address with the campaign's name, which is the shuffler's if there is one. A link
   * may have the keys to pin: URL/NAME#collector-key=KEY&shuffler-key=KEY. Nothing is sent to another address.
   */
  static open(url: string, options: ClientOptions): Promise<Client>;
  private constructor();
  readonly campaign: Campaign;
  /**
   * Encode each vector, category or record as one message, or as `campaign.mechanism.messages`, and send all, sealed if
   * the campaign is shuffled; resolves to their number when they are acknowledged. Each is another person's, so that the
   * ledger is charged once.
   */
  send(value: Vector | number | PersonRecord, group?: number): Promise<number>;
  send(values: readonly number[] | readonly PersonRecord[]): Promise<number>;
  send(vectors: Iterable<Vector> & ArrayLike<Vector>, groups?: Iterable<number>): Promise<number>;
  /**
   * Answer a study once, whatever the value is: resolves to when to come again, or to null if nothing is left to do. Then
   * the answer is sent, now or before, or the study has ended, or the person was away in their period of a panel. A stage
   * that is full, or a period that has not come, is a time to come again: fetch nothing yourself, call it again then. What
   * could not be sent waits in the outbox, and the next call sends the same bytes. It needs a ledger, or an outbox that
   * lasts.
   */
  takePart(value: unknown): Promise<Date | null>;
  /** Send messages of `campaign.mechanism.encode` that were never sent before; several per person slot by slot. */
  sendMessages(messages: readonly Message[]): Promise<number>;
  /**
   * Send what waits in the outbox, byte for byte as before, and resolve to the number of messages that were acknowledged.
   * It spends nothing more. `(await client.sendWaiting()) || (await client.send(x))` sends one answer, however often the
   * program is ended.
   */
  sendWaiting(): Promise<number>;
}

/** One expense. */
export interface Entry {
  readonly purpose: string;
  readonly epsilon: number;
  readonly time: string;
}

/** A budget that refuses to be overspent, in IndexedDB or, in Node, in a file. Pages and processes may share it. */
export declare class Ledger {
  /** Open or create the ledger of that name or path, with its total ε and the most of one expense. */
  static open(place: string, terms: { epsilon: number; cap?: number }): Promise<Ledger>;
  private constructor();
  readonly place: string;
  /** Pay for what one person sends; when this resolves, the expense is durable and the messages may leave. */
  spend(epsilon: number, purpose: string): Promise<void>;
  entries(): Promise<readonly Entry[]>;
  /** The sum of all expenses. */
  spent(): Promise<number>;
}

/** What keeps one JSON value. */
export interface Storage {
  /**
   * Replace the value, at first undefined, by what `change` makes of it, unless that is undefined; resolve when it is
   * durable. No other change may happen in between.
   */
  update(change: (value: unknown) => unknown): Promise<void>;
}

/** Messages that were paid for and not acknowledged yet: they are sent again as they are, also after a restart. */
export declare class Outbox {
  /** Open or create the outbox of that name in IndexedDB or, in Node, in a file. */
  static open(place: string): Promise<Outbox>;
  /** An outbox in a storage of your own; without one, in memory. */
  constructor(storage?: Storage);
}

/** The steps by themselves, for tests and reviewers; not part of the interface. */
export declare const steps: Readonly<Record<string, unknown>>;
