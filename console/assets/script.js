// Updates the open overview from the server's events. Without it, the page shows the
// numbers of the moment at which it was loaded.
"use strict";
(() => {
  const live = document.getElementById("live");
  const state = document.getElementById("live-state");
  if (!live || !window.EventSource) return;

  const setText = (el, text) => { if (el.textContent !== text) el.textContent = text; };
  const show = (update) => {
    document.querySelectorAll("[data-live]").forEach((el) => {
      const text = update.text[el.dataset.live];
      if (text !== undefined) setText(el, text);
    });
    document.querySelectorAll("[data-tone]").forEach((el) => {
      el.dataset.is = update.tone[el.dataset.tone] || "";
    });
    document.querySelectorAll("[data-path]").forEach((el) => {
      const path = update.path[el.dataset.path];
      if (path !== undefined) el.setAttribute("d", path);
    });
  };

  const source = new EventSource(live.dataset.source);
  const say = (text, tone) => { setText(state, text); live.dataset.is = tone; };
  source.addEventListener("message", (event) => {
    say("Live,", "good");
    show(JSON.parse(event.data));
  });
  source.addEventListener("end", () => {
    source.close();
    say("Your session has ended. As of", "alarm");
  });
  source.addEventListener("error", () => {
    say(source.readyState === EventSource.CLOSED ? "Not live. As of" : "Connecting again. As of", "alarm");
  });
})();
