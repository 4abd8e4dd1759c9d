// Numbers as the test vectors and the cases of Python write them.

const view = new DataView(new ArrayBuffer(8));

export const float32 = (text) => (view.setUint32(0, parseInt(text, 16)), view.getFloat32(0));
export const float64 = (text) => (view.setBigUint64(0, BigInt(`0x${text}`)), view.getFloat64(0));
export const float32s = (text) => Float32Array.from(text.split(" "), float32);
export const words = (text) => BigUint64Array.from(text.split(" "), (word) => BigInt(`0x${word}`));
export const hexadecimal = (bytes) => Buffer.from(bytes).toString("hex");

export function bitsOf(floats) {
  return Array.from(floats, (value) => (view.setFloat32(0, value), view.getUint32(0).toString(16).padStart(8, "0")));
}

/** What `answer` sends, which refuses nothing, with words of one's choice instead of the system's. */
export function answered(mechanism, value, words) {
  const original = crypto.getRandomValues;
  crypto.getRandomValues = (array) => {
    array.set(array.length === 1 ? [0n] : words); // the first one is for what has no place among the categories
    return array;
  };
  try {
    return mechanism.answer(value);
  } finally {
    crypto.getRandomValues = original;
  }
}
