// Replaces what the page shows by what the server knows now, as long as the page is visible.
"use strict";
const every = 1000 * document.currentScript.dataset.every;
async function refresh() {
  if (document.hidden) return;
  try {
    const answer = await fetch(location.href, { cache: "no-store" });
    const next = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
    if (answer.ok && next) document.querySelector("main").replaceWith(next);
    document.body.classList.toggle("stale", !answer.ok);
  } catch {
    document.body.classList.add("stale");
  }
}
(async () => {
  for (;;) {
    await new Promise((done) => setTimeout(done, every));
    await refresh();
  }
})();
document.addEventListener("visibilitychange", refresh);
