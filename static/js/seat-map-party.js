// Seats for a party that sits together. Works on a Plan.

// Whether these seats are side by side in one row.
export function isTogether(plan, party) {
  const { seats, reach } = plan.rowOf(party[0]);
  const indexes = party.map((seat) => seats.indexOf(seat)).sort((a, b) => a - b);
  if (indexes[0] < 0) return false;
  return indexes.every((at, index) => index === 0 || (at === indexes[index - 1] + 1 && distance(plan, seats[at - 1], seats[at]) <= reach));
}

// Returns the adjacent seats that suit a party best after it has lost some of its seats: of the same price and kind, free or
// `kept` by the party; in the same section if one of its rows has room; with as many kept seats as possible; then nearest to
// where the party was. Null if there are none.
export function groupLike(plan, party, kept) {
  const [first] = party;
  const isLike = (seat) => plan.category[seat] === plan.category[first] && plan.flags[seat] === plan.flags[first];
  if (!party.every(isLike)) return null;
  const suits = (seat) => isLike(seat) && (kept.has(seat) || (!plan.taken[seat] && plan.isShown(seat)));
  const [x, y] = middleOf(plan, party);
  let best = null;
  for (const { seats, reach, section } of plan.rows.values()) {
    let run = 0; // How many suitable seats end here, side by side.
    seats.forEach((seat, index) => {
      const isNext = run > 0 && distance(plan, seats[index - 1], seat) <= reach;
      run = suits(seat) ? (isNext ? run + 1 : 1) : 0;
      if (run < party.length) return;
      const group = seats.slice(index + 1 - party.length, index + 1);
      const [gx, gy] = middleOf(plan, group);
      const cost = [Number(section !== plan.section[first]), -group.filter((one) => kept.has(one)).length, Math.hypot(gx - x, gy - y)];
      if (!best || isLess(cost, best.cost)) best = { group, cost };
    });
  }
  return best && best.group;
}

function distance(plan, one, other) {
  return Math.hypot(plan.x[one] - plan.x[other], plan.y[one] - plan.y[other]);
}

function middleOf(plan, seats) {
  const sum = seats.reduce(([x, y], seat) => [x + plan.x[seat], y + plan.y[seat]], [0, 0]);
  return sum.map((part) => part / seats.length);
}

function isLess(one, other) {
  const at = one.findIndex((part, index) => part !== other[index]);
  return at >= 0 && one[at] < other[at];
}
