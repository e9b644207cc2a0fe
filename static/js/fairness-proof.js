// Recomputes every position of a line from published data alone, by the same steps as manage.py verify_queue.
// docs/fairness.md describes the format. This module does not use the DOM.

const FORMAT = 1;
const BATCH = 2_000;
const MARKS = ["vip", "operator"];
const text = new TextEncoder();

export class Mismatch extends Error {
  constructor(message, number = null) {
    super(number === null ? message : `Number ${number.toLocaleString("en-US")}: ${message}`);
    this.number = number;
  }
}

const hexOf = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

function bytesOf(hex, what, length = null, number = null) {
  if (typeof hex !== "string" || !/^(?:[0-9a-f]{2})*$/.test(hex) || (length !== null && hex.length !== 2 * length)) {
    throw new Mismatch(`${what} is malformed.`, number);
  }
  return Uint8Array.from({ length: hex.length / 2 }, (_, at) => parseInt(hex.slice(2 * at, 2 * at + 2), 16));
}

function joined(parts) {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

const sha256 = async (...parts) => new Uint8Array(await crypto.subtle.digest("SHA-256", joined(parts)));

function compare(one, other) {
  for (let at = 0; at < one.length; at += 1) if (one[at] !== other[at]) return one[at] - other[at];
  return 0;
}

function whole(value, what, least = 0) {
  if (!Number.isSafeInteger(value) || value < least) throw new Mismatch(`${what} is malformed.`);
  return value;
}

// The canonical JSON that is hashed and signed: keys sorted, no spaces.
export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const names = Object.keys(value).sort();
  return `{${names.map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join(",")}}`;
}

async function* items(proof, part, fetchPage, count = Infinity) {
  let page = proof[part];
  let given = 0;
  for (;;) {
    for (const item of page?.items ?? []) {
      if (given === count) {
        if (part === "entrants") throw new Mismatch(`More than ${count} entrants are published.`);
        return;
      }
      given += 1;
      yield item;
    }
    if (page?.next == null) break;
    const next = await fetchPage(part, page.next);
    if (next.next != null && !(next.next > page.next)) throw new Mismatch("The data’s pages form a loop.");
    page = next;
  }
  if (Number.isFinite(count) && given < count) throw new Mismatch(`Only ${given} ${part} of ${count} are published.`);
}

async function* leaves(proof, fetchPage, first, last, progress) {
  if (first > last) return;
  let page = proof.places;
  let number = whole(page?.from, "The first number");
  if (number > first) throw new Mismatch("no leaf is published.", first);
  for (;;) {
    for (const given of page.leaves) {
      if (number > last) return;
      if (number >= first) {
        if (given === null) throw new Mismatch("there is no entry.", number);
        yield [number, bytesOf(given, "the leaf", 32, number)];
      }
      number += 1;
      if (number % BATCH === 0) await progress(number);
    }
    if (number > last) return;
    if (!page.leaves.length || page.next == null) throw new Mismatch("no leaf is published.", number);
    const from = Math.max(number, first);
    page = await fetchPage("places", from - 1);
    if (page.from !== from || !Array.isArray(page.leaves)) throw new Mismatch("its page is malformed.", from);
    number = from;
  }
}

async function checkDigest(all, digest) {
  const sorted = [...all].sort(compare);
  const found = hexOf(await sha256(...sorted));
  if (found !== digest) {
    throw new Mismatch(`The fingerprint of the ${all.length} entrants does not match the published one: an entrant was changed, added or removed after it was published.`);
  }
}

async function checkSeed(draw, statement) {
  const secret = bytesOf(draw.secret, "The secret", 32);
  if (hexOf(await sha256(secret)) !== statement.secret_sha256) throw new Mismatch("The secret does not match the published commitment.");
  const isBeaconPromised = ![undefined, null, "", "none"].includes(statement.beacon?.source);
  const beacon = bytesOf(draw.beacon_value ?? "", "The beacon value");
  if (draw.is_operator_proof !== beacon.length > 0) throw new Mismatch("The published beacon status does not match the beacon value.");
  if (beacon.length && !isBeaconPromised) throw new Mismatch("A beacon was used that had not been announced.");
  if (isBeaconPromised && !beacon.length && Date.parse(draw.revealed_at) < Date.parse(draw.reveal_by)) {
    throw new Mismatch("The announced beacon was left out before its deadline.");
  }
  if (beacon.length && statement.beacon.at && Date.parse(statement.beacon.at) <= Date.parse(draw.digest_at)) {
    throw new Mismatch("The beacon value was published before the entrants were fixed.");
  }
  if (beacon.length) {
    // No browser can verify the signature itself (BLS12-381); manage.py verify_queue does.
    const signature = bytesOf(draw.beacon_signature, "The beacon’s signature");
    if (!statement.beacon.public_key || hexOf(await sha256(signature)) !== draw.beacon_value) {
      throw new Mismatch("The beacon value does not match its signature.");
    }
  }
  const seed = await sha256(secret, bytesOf(draw.digest, "The fingerprint", 32), beacon);
  if (hexOf(seed) !== draw.seed) throw new Mismatch("The seed does not match the secret, entrants and beacon.");
  return seed;
}

async function checkDrawn(proof, fetchPage, seed, count, progress) {
  const all = [];
  for await (const [, leaf] of leaves(proof, fetchPage, 1, count, progress)) all.push(leaf);
  await checkDigest(all, proof.draw.digest);
  const keys = [];
  for (let at = 0; at < all.length; at += BATCH) {
    keys.push(...(await Promise.all(all.slice(at, at + BATCH).map((leaf) => sha256(seed, leaf)))));
    await progress(count);
  }
  const inOrder = (one, other) => compare(keys[one], keys[other]) || compare(all[one], all[other]);
  const order = all.map((_, at) => at).sort(inOrder);
  const wrong = order.findIndex((drawn, at) => drawn !== at);
  if (wrong >= 0) throw new Mismatch("the seed assigns it to another entrant.", wrong + 1);
  return all;
}

// Verifies a receipt's leaf and, if this browser supports Ed25519, its signature; returns what `verify` needs to check the rest.
export async function readReceipt(receipt, proof) {
  if (receipt === null || typeof receipt !== "object" || !receipt.as_of) throw new Mismatch("This file is not a receipt.");
  if (receipt.event !== proof.event) throw new Mismatch("This receipt is for another event.");
  const key = proof.keys.find((known) => known.key_id === receipt.key_id);
  if (!key) throw new Mismatch("This receipt is signed with a key that is not published.");
  const { signature, ...signed } = receipt;
  let isSigned = null;
  try {
    const imported = await crypto.subtle.importKey("raw", bytesOf(key.public, "The key", 32), "Ed25519", false, ["verify"]);
    isSigned = await crypto.subtle.verify("Ed25519", imported, bytesOf(signature, "The signature", 64), text.encode(canonical(signed)));
  } catch (error) {
    if (error instanceof Mismatch) throw error; // Otherwise this browser does not support Ed25519; the result says so.
  }
  if (isSigned === false) throw new Mismatch("This receipt’s signature is invalid: the receipt was changed or never issued.");
  const entry = bytesOf(String(receipt.entry).replaceAll("-", ""), "The receipt’s entry", 16);
  if (hexOf(await sha256(entry, bytesOf(receipt.nonce, "The receipt’s nonce"))) !== receipt.leaf) {
    throw new Mismatch("This receipt’s leaf does not match its entry.");
  }
  if (receipt.commitment && receipt.commitment !== proof.draw?.commitment) throw new Mismatch("This receipt names a different commitment.");
  return { leaf: receipt.leaf, number: receipt.number, nextNumber: receipt.as_of.next_number, chain: receipt.as_of.chain_head, isSigned };
}

// Returns what was verified; throws a Mismatch for the first item that does not match.
export async function verify(proof, fetchPage, { progress = async () => {}, watch = null } = {}) {
  if (proof?.format !== FORMAT) throw new Mismatch("This page does not support the data’s format.");
  const room = proof.room ?? {};
  const nextNumber = whole(room.next_number, "The next number", 1);
  const lobby = whole(room.lobby_count, "The lobby");
  const { draw } = proof;
  const seen = { lobby, drawn: 0, firstCome: nextNumber - 1 - lobby, isOperatorProof: null, stage: "none", chain: room.chain_head, watched: null };
  const step = (number) => progress(Math.min(1, number / nextNumber));
  const compareWatched = (number, leaf) => {
    if (watch && hexOf(leaf) === watch.leaf) seen.watched = number;
  };
  if (!draw && lobby) throw new Mismatch("The line has a lobby but no draw.");
  if (draw) {
    if (hexOf(await sha256(text.encode(draw.statement))) !== draw.commitment) throw new Mismatch("The commitment does not match the statement.");
    const statement = JSON.parse(draw.statement);
    if (statement.event !== proof.event) throw new Mismatch("The statement is for another event.");
    if (Date.parse(statement.reveal_by) !== Date.parse(draw.reveal_by)) throw new Mismatch("The reveal deadline does not match the statement.");
    seen.stage = draw.frozen_at ? "closed" : "open";
    if (draw.frozen_at && draw.entrants_count !== lobby) throw new Mismatch("The draw and the waiting room disagree on the number of entrants.");
    if (draw.digest && !draw.drawn_at) {
      const entrants = [];
      for await (const leaf of items(proof, "entrants", fetchPage, lobby)) entrants.push(bytesOf(leaf, "An entrant", 32));
      await checkDigest(entrants, draw.digest);
      seen.stage = "counted";
      seen.isEntrant = watch !== null && entrants.some((leaf) => hexOf(leaf) === watch.leaf);
    }
    if (draw.secret) {
      const seed = await checkSeed(draw, statement);
      seen.isOperatorProof = draw.is_operator_proof;
      seen.stage = "revealed";
      if (draw.drawn_at) {
        (await checkDrawn(proof, fetchPage, seed, lobby, step)).forEach((leaf, at) => compareWatched(at + 1, leaf));
        seen.drawn = lobby;
        seen.stage = "drawn";
      }
    } else if (draw.drawn_at) throw new Mismatch("Numbers were drawn but the secret is not revealed.");
  }
  let chain = null;
  const checkWatched = (number) => {
    if (watch && watch.nextNumber === number && watch.chain !== (chain ? hexOf(chain) : "")) {
      throw new Mismatch("a lower number was changed since this receipt was issued.", number);
    }
  };
  const size = new DataView(new ArrayBuffer(8));
  checkWatched(lobby + 1);
  for await (const [number, leaf] of leaves(proof, fetchPage, lobby + 1, nextNumber - 1, step)) {
    compareWatched(number, leaf);
    chain ??= await sha256(text.encode(`fairgate queue ${proof.event}`));
    size.setBigUint64(0, BigInt(number));
    chain = await sha256(chain, new Uint8Array(size.buffer), leaf);
    checkWatched(number + 1);
  }
  if ((chain ? hexOf(chain) : "") !== room.chain_head) {
    throw new Mismatch(`The chain of numbers ${lobby + 1} to ${nextNumber - 1} does not have the published end: one of them was changed.`);
  }
  seen.marked = 0;
  for await (const item of items(proof, "marked", fetchPage)) {
    if (!MARKS.includes(item?.by)) throw new Mismatch("marked by an unknown authority.", whole(item?.number, "A marked number", 1));
    seen.marked += 1;
  }
  if (watch) {
    if (watch.nextNumber > nextNumber) throw new Mismatch("The receipt covers more numbers than are published.");
    if (watch.number !== null && seen.watched !== watch.number) throw new Mismatch("the receipt’s entry does not have this number.", watch.number);
    if (watch.number === null && ((seen.stage === "drawn" && seen.watched === null) || seen.isEntrant === false)) {
      throw new Mismatch("The receipt’s entry is not among the lobby’s entrants.");
    }
  }
  return seen;
}
