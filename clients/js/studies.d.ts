import type { Ledger, Mechanism } from "./sstq.js";

/** A question of a study, read from its document; an SstqError with code "document" if anything is out of bounds. */
export class Question {
  constructor(json: string | object);
  /** Null if the document is that of a classifier, and names no study. */
  readonly study: string | null;
  readonly kind: string;
  readonly mechanism: Mechanism;
  /** What the mechanism encodes, for any value. */
  held(value: unknown): unknown;
  /** One private message, whatever the value is: what `mechanism.pack` and `client.sendMessages` take. */
  message(value: unknown): ReturnType<Mechanism["answer"]>;
  /** What a ledger pays for, once. */
  purpose(): Promise<string>;
}

/** One private message, as bytes, whatever the value is; the ledger has one entry per study. */
export function answer(
  document: string | object,
  value: unknown,
  options: { mostEpsilon: number; ledger?: Ledger },
): Promise<Uint8Array>;

/** Draw the period of a panel in which this device answers, before it looks at any data; keep it until then. */
export function drawTurn(document: string | object): number;

/** Whether a device that drew this period, and has not answered, answers the document. */
export function isTurn(document: string | object, turn: number): boolean;
