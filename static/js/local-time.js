// Adds the visitor's local time beside a time at the venue, if the two differ at that moment.
//
// time[data-local-time=ZONE]  a time shown in this zone; datetime is the moment

const parts = (moment, timeZone) => new Intl.DateTimeFormat("en-GB", { timeZone, dateStyle: "short", timeStyle: "short" }).format(moment);

for (const time of document.querySelectorAll("time[data-local-time]")) {
  const moment = new Date(time.dateTime);
  if (Number.isNaN(moment.getTime()) || parts(moment) === parts(moment, time.dataset.localTime)) continue;
  const isOtherDay = parts(moment).slice(0, 10) !== parts(moment, time.dataset.localTime).slice(0, 10);
  const day = isOtherDay ? { weekday: "short", day: "numeric", month: "short" } : {};
  const local = new Intl.DateTimeFormat("en-GB", { ...day, hour: "2-digit", minute: "2-digit" }).format(moment);
  const words = document.createElement("span");
  words.className = "small local-time";
  words.textContent = `${local} your time`;
  time.after(words);
}
