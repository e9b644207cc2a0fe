// A worker: tries the counters first, first + step, … of an Altcha challenge (PBKDF2) and posts { counter, derivedKey }.
const COUNTER_MAX = 0xffff0000;
const AT_ONCE = 16; // Derivations in flight, since each is a message to a thread of the browser and back.

const bytes = (hex) => Uint8Array.from(hex.match(/../g), (pair) => parseInt(pair, 16));
const hex = (buffer) => Array.from(new Uint8Array(buffer), (byte) => byte.toString(16).padStart(2, "0")).join("");

// One derivation. The counter is the last four bytes of the password.
async function derive(parameters, nonce, counter) {
  const password = new Uint8Array(nonce.length + 4);
  password.set(nonce);
  new DataView(password.buffer).setUint32(nonce.length, counter);
  const key = await crypto.subtle.importKey("raw", password, "PBKDF2", false, ["deriveBits"]);
  return hex(await crypto.subtle.deriveBits(parameters.derivation, key, parameters.bits));
}

async function solve({ parameters }, first, step) {
  const nonce = bytes(parameters.nonce);
  const derivation = {
    name: "PBKDF2",
    hash: parameters.algorithm.split("/")[1],
    salt: bytes(parameters.salt),
    iterations: parameters.cost,
  };
  const given = { derivation, bits: parameters.keyLength * 8 };
  for (let next = first; next <= COUNTER_MAX; next += step * AT_ONCE) {
    const counters = Array.from({ length: AT_ONCE }, (_, index) => next + index * step);
    const keys = await Promise.all(counters.map((counter) => derive(given, nonce, counter)));
    const found = keys.findIndex((key) => key.startsWith(parameters.keyPrefix));
    if (found >= 0) return { counter: counters[found], derivedKey: keys[found] };
  }
  return null;
}

onmessage = async ({ data }) => {
  try {
    postMessage(await solve(data.challenge, data.first, data.step));
  } catch {
    postMessage(null);
  }
};
